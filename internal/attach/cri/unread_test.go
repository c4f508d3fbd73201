package cri_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/attachtest"
)

var errBroken = status.Error(codes.Internal, "failed to get task status")

// ran adds a pod and a running container to a runtime, created some time ago.
func (r *fakeRuntime) ran(pod, ctr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	long := time.Now().Add(-time.Minute).UnixNano()
	if r.pods[pod] == nil {
		r.pods[pod] = &api.PodSandbox{
			Id: pod, Metadata: &api.PodSandboxMetadata{Name: pod, Uid: "u-" + pod, Namespace: "shop"}, Annotations: map[string]string{"a": pod}, CreatedAt: long,
		}
	}
	r.ctrs[ctr] = &fakeContainer{asked: config(), listed: &api.Container{
		Id: ctr, PodSandboxId: pod, Metadata: &api.ContainerMetadata{Name: "n-" + ctr}, Annotations: map[string]string{"record": ctr},
		State: api.ContainerState_CONTAINER_RUNNING, CreatedAt: long,
	}}
}

// described returns the first event of a kind with a complete description.
func (h *handler) described(kind lifecycle.Kind, id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.events, func(ev lifecycle.Event) bool {
		if c := ev.Container; c != nil {
			return ev.Kind == kind && c.ID == id && c.Undescribed == "" && ev.Pod.Undescribed == "" && len(c.Env) > 0
		}
		return ev.Kind == kind && ev.Pod != nil && ev.Pod.ID == id && ev.Pod.Undescribed == "" && ev.Pod.CgroupParent != ""
	})
}

// TestUnread: a pod and a container that the runtime cannot describe are reported from their list entries,
// with their annotations. The proxy decides the calls about all others. They are reported fully as soon as
// the runtime can describe them.
func TestUnread(t *testing.T) {
	for name, err := range map[string]error{"an error": errBroken, "no answer": nil} {
		t.Run(name, func(t *testing.T) {
			g := &rig{t: t, dir: t.TempDir(), h: newHandler()}
			g.runtime = startRuntime(t, filepath.Join(t.TempDir(), "r.sock"))
			g.runtime.ran("fine", "c-fine")
			g.runtime.ran("badly", "c-inner")
			g.runtime.ran("other", "c-bad")
			g.runtime.bad = map[string]error{"badly": err, "c-bad": err}
			o := g.options(false)
			o.RuntimeTimeout = 10 * time.Second
			g.attachWith(o)
			checkSync(t, g.h)
			// The attachment does not pass calls undecided: it decides the next one.
			id := g.run(g.runPod())
			g.h.found(t, lifecycle.StartContainer, id)
			if state, _, err := g.a.Status(); state != connect.StateSynchronised || err != nil {
				t.Errorf("%s: %v", state, err)
			}
			// A request meanwhile is reported with the known fields.
			if _, err := g.client.StopContainer(g.ctx(), &api.StopContainerRequest{ContainerId: "c-fine"}); err != nil {
				t.Error(err)
			}
			g.runtime.set(func() { g.runtime.bad = nil })
			attachtest.Until(t, "all is described", func() bool {
				return g.h.described(lifecycle.RunPodSandbox, "badly") && g.h.described(lifecycle.StartContainer, "c-inner") &&
					g.h.described(lifecycle.StartContainer, "c-bad")
			})
			if n := g.h.detached.Load(); n > 0 {
				t.Errorf("the runtime was called away %d times", n)
			}
		})
	}
}

func checkSync(t *testing.T, h *handler) {
	t.Helper()
	sync := h.found(t, lifecycle.Synchronize, "")
	if len(sync.Pods) != 3 || len(sync.Containers) != 3 {
		t.Fatalf("synchronised with %d pods and %d containers", len(sync.Pods), len(sync.Containers))
	}
	for _, p := range sync.Pods {
		if (p.Undescribed != "") != (p.ID == "badly") || p.CgroupParent == "" || p.UID != "u-"+p.ID || p.Annotations["a"] != p.ID {
			t.Errorf("%+v", p)
		}
	}
	for _, c := range sync.Containers {
		if (c.Undescribed != "") != (c.ID != "c-fine") || c.Name != "n-"+c.ID || c.Annotations["record"] != c.ID || c.State != lifecycle.StateRunning {
			t.Errorf("%+v", c)
		}
	}
}

// TestUnreadLater: an object that was created without a call of the kubelet and that the runtime cannot
// describe is reported from its list entry, and the runtime still counts as connected. The kubelet's next
// calls have the missing data.
func TestUnreadLater(t *testing.T) {
	g := newRig(t)
	g.runtime.set(func() { g.runtime.bad = map[string]error{"late": errBroken, "c-late": errBroken, "c-worse": errBroken} })
	g.runtime.ran("late", "c-late")
	g.runtime.ran("sound", "c-worse")
	g.runtime.ran("sound", "c-sound")
	g.h.found(t, lifecycle.StartContainer, "c-sound")
	if ev := g.h.found(t, lifecycle.StartContainer, "c-worse"); ev.Container.Undescribed == "" || ev.Container.Name != "n-c-worse" {
		t.Errorf("%+v", ev.Container)
	}
	if ev := g.h.found(t, lifecycle.RunPodSandbox, "late"); ev.Pod.Undescribed == "" || ev.Pod.UID != "u-late" {
		t.Errorf("%+v", ev.Pod)
	}
	if state, _, err := g.a.Status(); state != connect.StateSynchronised || err != nil || g.h.detached.Load() > 0 {
		t.Errorf("%s: %v", state, err)
	}
	if _, err := g.create("late", config()); err != nil {
		t.Fatal(err)
	}
	if !g.h.described(lifecycle.RunPodSandbox, "late") {
		t.Error("the pod in the request was not reported")
	}
	// A start asks the runtime again.
	g.runtime.set(func() { delete(g.runtime.bad, "c-worse") })
	if _, err := g.client.StartContainer(g.ctx(), &api.StartContainerRequest{ContainerId: "c-worse"}); err != nil {
		t.Fatal(err)
	}
	attachtest.Until(t, "it is described", func() bool { return g.h.described(lifecycle.StartContainer, "c-worse") })
}

// TestUnreadEnds: the end of an object that the runtime cannot describe is reported.
func TestUnreadEnds(t *testing.T) {
	g := &rig{t: t, dir: t.TempDir(), h: newHandler()}
	g.runtime = startRuntime(t, filepath.Join(t.TempDir(), "r.sock"))
	g.runtime.ran("badly", "c-inner")
	g.runtime.ran("other", "c-bad")
	g.runtime.bad = map[string]error{"badly": errBroken, "c-bad": errBroken, "c-inner": errBroken}
	g.attach(false)
	g.runtime.set(func() { delete(g.runtime.ctrs, "c-inner") })
	if err := g.runtime.state("c-bad", api.ContainerState_CONTAINER_EXITED); err != nil {
		t.Fatal(err)
	}
	g.h.found(t, lifecycle.RemoveContainer, "c-inner") // a pod ends after its containers, so its end is reported later
	g.runtime.set(func() { delete(g.runtime.pods, "badly") })
	g.h.found(t, lifecycle.RemovePodSandbox, "badly")
	g.h.found(t, lifecycle.StopContainer, "c-bad")
}
