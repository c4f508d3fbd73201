package bypass

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/attachtest"
)

var errBroken = status.Error(codes.Internal, "failed to get task status")

// described returns the first event of a kind with a complete description of a container, or of a pod if
// the kind is about pods.
func (h *recorder) described(kind lifecycle.Kind, id string) (ev lifecycle.Event, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ev := range h.all {
		switch {
		case ev.Kind != kind:
		case ev.Container != nil && ev.Container.ID == id && ev.Container.Undescribed == "",
			ev.Container == nil && ev.Pod != nil && ev.Pod.ID == id && ev.Pod.Undescribed == "":
			return ev, true
		}
	}
	return ev, false
}

// TestUnread: a pod and a container that the runtime cannot describe are reported from their list entries.
// They do not delay the others, and are reported fully as soon as the runtime can describe them.
func TestUnread(t *testing.T) {
	for name, err := range map[string]error{"an error": errBroken, "no answer": nil} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, r *fakeCRI) {
				t.Helper()
				fine := r.create(r.pod("fine", "uid-fine", nil, nil), "fine", nil)
				badly := r.pod("badly", "uid-badly", nil, map[string]string{"a": "1"})
				inner := r.create(badly, "inner", nil)
				bad := r.create(r.pod("other", "uid-other", nil, nil), "bad", nil)
				for _, id := range []string{fine, inner, bad} {
					r.start(id)
				}
				r.bad = map[string]error{badly: err, bad: err}
				h := &recorder{}
				run(t, r, h, func(o *Options) { o.PollInterval = 20 * time.Millisecond })
				checkSync(t, h, badly, inner, bad)
				// All others are decided as usual.
				next := r.create(r.pod("next", "uid-next", nil, nil), "next", nil)
				r.start(next)
				attachtest.Until(t, "another starts", func() bool { return h.count("StartContainer next") == 1 })
				r.set(func() { r.bad = nil })
				attachtest.Until(t, "all is described", func() bool {
					ev, pod := h.described(lifecycle.RunPodSandbox, badly)
					_, of := h.described(lifecycle.StartContainer, inner)
					ctr, by := h.described(lifecycle.StartContainer, bad)
					return pod && of && by && ev.Pod.CgroupParent == "/kubepods/burstable/poduid-badly" && slices.Equal(ctr.Container.Env, []string{"A=b"})
				})
				if n := h.count("UpdateContainer bad") + h.count("UpdateContainer inner"); n > 0 {
					t.Errorf("what it was asked for at first is taken for a change: %d updates", n)
				}
			})
		})
	}
}

func checkSync(t *testing.T, h *recorder, pod, inner, bad string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sync.Pods) != 3 || len(h.sync.Containers) != 3 {
		t.Fatalf("synchronised with %d pods and %d containers", len(h.sync.Pods), len(h.sync.Containers))
	}
	for _, p := range h.sync.Pods {
		if (p.Undescribed != "") != (p.ID == pod) || p.CgroupParent != "/kubepods/burstable/pod"+p.UID {
			t.Errorf("%+v", p)
		}
		if p.ID == pod && (p.Annotations["a"] != "1" || p.UID != "uid-badly" || p.Name != "badly") {
			t.Errorf("%+v", p)
		}
	}
	for _, c := range h.sync.Containers {
		if (c.Undescribed != "") != (c.ID == inner || c.ID == bad) || !strings.HasSuffix(c.CgroupsPath, c.ID) || c.State != lifecycle.StateRunning {
			t.Errorf("%+v", c)
		}
		if c.ID == bad && (c.Name != "bad" || len(c.Env) > 0) {
			t.Errorf("%+v", c)
		}
	}
}

// TestUnreadLater: a new pod and container that the runtime cannot describe delay nothing else, and are
// reported from their list entries after a while, because they may run on CPUs that others should get.
func TestUnreadLater(t *testing.T) {
	both(t, func(t *testing.T, r *fakeCRI) {
		t.Helper()
		h := &recorder{}
		run(t, r, h, func(o *Options) { o.PollInterval, o.Resync = 20*time.Millisecond, 50*time.Millisecond })
		r.set(func() { r.bad = map[string]error{} })
		pod := r.pod("web", "uid-web", nil, nil)
		attachtest.Until(t, "the handler has the pod", func() bool { return h.count("RunPodSandbox web") == 1 })
		bad := r.create(pod, "bad", nil)
		r.set(func() { r.bad[bad] = errBroken })
		fine := r.create(pod, "fine", nil)
		r.start(bad)
		r.start(fine)
		attachtest.Until(t, "the other starts", func() bool { return h.count("StartContainer fine") == 1 })
		attachtest.Until(t, "the handler has the container as the list has it", func() bool { return h.count("StartContainer bad") == 1 })
		r.mu.Lock()
		lost := fmt.Sprintf("%064x", r.n+1)
		r.bad[lost] = errBroken
		r.mu.Unlock()
		if r.pod("lost", "uid-lost", nil, nil) != lost {
			t.Fatal("another id")
		}
		attachtest.Until(t, "so is a pod", func() bool { return h.count("RunPodSandbox lost") > 0 })
		r.set(func() { r.bad = nil })
		attachtest.Until(t, "both are described", func() bool {
			_, ctr := h.described(lifecycle.StartContainer, bad)
			_, pod := h.described(lifecycle.RunPodSandbox, lost)
			return ctr && pod
		})
	})
}
