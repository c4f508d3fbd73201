package conductor_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement/kubelet"
)

// patient is a carrier whose runtime has this request timeout.
type patient struct {
	carrier

	limit time.Duration
}

func (p patient) Capabilities() conductor.Capabilities {
	can := p.carrier.Capabilities()
	can.AnswerTimeout = p.limit
	return can
}

// slowSource is a slow source of facts, with a time limit of its own.
type slowSource struct {
	own   time.Duration
	known atomic.Bool
}

func (s *slowSource) wait(ctx context.Context) {
	t := time.NewTimer(s.own)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

type slowSpecs struct{ *slowSource }

func (s slowSpecs) Await(ctx context.Context, _ *lifecycle.Pod) { s.wait(ctx) }

func (s slowSpecs) Spec(uid string) *lifecycle.PodSpec {
	if !s.known.Load() {
		return nil
	}
	return &lifecycle.PodSpec{UID: uid, Name: "p", Namespace: "default", From: lifecycle.FromKubelet}
}

type slowGrants struct{ *slowSource }

func (s slowGrants) Await(ctx context.Context, _ ...*lifecycle.Pod) { s.wait(ctx) }

func (slowGrants) Invalidate(*lifecycle.Pod) {}

func (s slowGrants) Granted(p *lifecycle.Pod) *lifecycle.KubeletGrants { return s.Known(p.UID) }

func (s slowGrants) Known(uid string) *lifecycle.KubeletGrants {
	if !s.known.Load() {
		return nil
	}
	return &lifecycle.KubeletGrants{UID: uid, Name: "p", Namespace: "default"}
}

// timedHookServers are hook servers that record how much time they were given.
type timedHookServers struct {
	*slowSource

	given []time.Duration
}

func (h *timedHookServers) Asks(lifecycle.Kind) bool { return true }

func (h *timedHookServers) Ask(ctx context.Context, _ *lifecycle.Event) (lifecycle.HookServerAnswer, error) {
	end, _ := ctx.Deadline()
	h.given = append(h.given, time.Until(end))
	h.wait(ctx)
	return lifecycle.HookServerAnswer{}, nil
}

func (h *timedHookServers) Notify(*lifecycle.Event) {}

// TestOneBudget: an event that waits for several sources, one after another, is still answered
// within the runtime's time limit. A problem names each source that was cut short, until its
// facts are known.
func TestOneBudget(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	s := &slowSource{own: limit - limit/8}
	mo := newModel(t, cgroup.V2, faults{})
	mo.policy.Placement = kubelet.Policy{Policy: mo.policy.Placement} // the grants of all pods are requested
	var log bytes.Buffer
	servers := &timedHookServers{slowSource: s}
	con := conductor.New(conductor.Options{
		Machine: mo.machine, Policy: mo.policy, Keeper: keeper.New(&cgroup.Tree{FS: mo.kernel, Version: mo.version}),
		Key: []byte("a key of the test, 32 bytes long"), Log: slog.New(slog.NewTextHandler(&log, nil)), Now: time.Now,
		Specs: slowSpecs{s}, Grants: slowGrants{s}, HookServers: servers,
	})
	pod := &lifecycle.Pod{ID: "sandbox", Name: "p", UID: "u", Namespace: "default", CgroupParent: "/kubepods/podu", Annotations: map[string]string{intent.RubikBurst: "1000"}}
	ctr := &lifecycle.Container{ID: "c", PodID: "sandbox", Name: "a", CgroupsPath: "/kubepods/podu/c", State: lifecycle.StateCreated}
	for _, from := range []conductor.Carrier{patient{limit: limit}, carrier{}} {
		for _, ev := range []lifecycle.Event{{Kind: lifecycle.RunPodSandbox, Pod: pod}, {Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr}} {
			ctx := t.Context()
			if from.Capabilities().AnswerTimeout == 0 { // the end of the call's context counts as well
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			start := time.Now()
			if _, err := con.Handle(ctx, from, ev); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > limit {
				t.Errorf("%v took %v", ev.Kind, took)
			}
		}
	}
	con.Flush()
	for _, given := range servers.given {
		if given > limit/8 {
			t.Errorf("hook servers were given %v after all that was waited for", given)
		}
	}
	if got := late(con); len(got) != 2 || !strings.Contains(got[0]+got[1], "the pod's spec did not come in time") || !strings.Contains(got[0]+got[1], "the kubelet's grants for the pod did not come in time") {
		t.Errorf("problems %q", got)
	}
	if got := log.String(); !strings.Contains(got, "did not come in time") {
		t.Errorf("log: %s", got)
	}
	s.known.Store(true)
	con.Inform([]string{"u"})
	con.Flush()
	if got := late(con); len(got) > 0 {
		t.Errorf("known by now: %q", got)
	}
}

// late returns the container's problems about waits that were cut short.
func late(con *conductor.Conductor) []string {
	var out []string
	found, _ := nodeview.Explain(con, "default", "p", "a")
	for _, e := range found {
		for _, q := range e.Problems {
			if q.Key == lifecycle.MissingSpecKey || q.Key == lifecycle.MissingGrantsKey {
				out = append(out, q.Sentence())
			}
		}
	}
	return out
}

// lateSpecs gets a pod's spec after it was asked for the first time. It reports this at once, as the real sources do.
type lateSpecs struct {
	asked  int
	inform func(uids []string)
}

func (*lateSpecs) Await(context.Context, *lifecycle.Pod) {}

func (s *lateSpecs) Spec(uid string) *lifecycle.PodSpec {
	if s.asked++; s.asked == 1 {
		s.inform([]string{uid, "unknown"})
		return nil
	}
	return &lifecycle.PodSpec{UID: uid, Name: "p", Namespace: "default", From: lifecycle.FromKubelet}
}

// TestSpecDuringDecision: a spec that comes while the first event of its pod is decided counts after this event. The
// pod was unknown when the source reported the spec.
func TestSpecDuringDecision(t *testing.T) {
	t.Parallel()
	pod := &lifecycle.Pod{ID: "sandbox", Name: "p", UID: "u", Namespace: "default", CgroupParent: "/kubepods/podu"}
	ctr := &lifecycle.Container{ID: "c", PodID: "sandbox", Name: "a", CgroupsPath: "/kubepods/podu/c", State: lifecycle.StateRunning}
	for _, ev := range []lifecycle.Event{
		{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{pod}, Containers: []*lifecycle.Container{ctr}},
		{Kind: lifecycle.RunPodSandbox, Pod: pod},
	} {
		mo := newModel(t, cgroup.V2, faults{})
		specs := &lateSpecs{}
		con := conductor.New(conductor.Options{
			Machine: mo.machine, Policy: mo.policy, Keeper: keeper.New(&cgroup.Tree{FS: mo.kernel, Version: mo.version}),
			Key: []byte("a key of the test, 32 bytes long"), Log: slog.New(slog.DiscardHandler), Now: time.Now, Specs: specs,
		})
		specs.inform = con.Inform
		if _, err := con.Handle(t.Context(), carrier{}, ev); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := con.Run(ctx); err != nil { // waits for what continues after an event
			t.Fatal(err)
		}
		pods := con.CopyState().PodsOf("u")
		if len(pods) != 1 || pods[0].Spec == nil {
			t.Errorf("%v: the decided pods are %+v", ev.Kind, pods)
		}
	}
}
