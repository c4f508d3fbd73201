package conductor

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/runtimes"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// crio is an attachment to CRI-O over NRI.
type crio struct{ anything }

func (crio) Capabilities() Capabilities { return toCRIO(runtimes.NRI) }

func toCRIO(by runtimes.Protocol) Capabilities {
	can := anything{}.Capabilities()
	can.WhyNotAccepted = func(c runtimes.Call, v lifecycle.Value) string {
		return runtimes.Identify("cri-o", "1.36.3", runtimes.Version{}).WhyNotAccepted(by, c, v)
	}
	return can
}

// batch is a conductor with one batch pod on CRI-O.
type batch struct {
	*Conductor
	t      *testing.T
	kernel *kernel.Cgroups
	pod    *lifecycle.Pod
	ctr    *lifecycle.Container
}

func newBatch(t *testing.T, limits string) *batch {
	t.Helper()
	c, _, _ := observed(t, false)
	kernel, err := kernel.NewCgroups(cgroup.V2, "0-3", "0-1")
	if err != nil {
		t.Fatal(err)
	}
	c.keeper = keeper.New(&cgroup.Tree{FS: kernel, Version: cgroup.V2})
	c.node.state.Policy.Hooks = []hook.Hook{hook.BatchOptions{}}
	c.node.state.Policy.Rules = intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}}
	b := &batch{Conductor: c, t: t, kernel: kernel}
	b.pod = &lifecycle.Pod{
		ID: "b", Name: "batch", UID: "ub", Namespace: "shop", CgroupParent: "/kubepods/podub",
		Labels: map[string]string{intent.KoordQoSClass: "BE"}, Annotations: map[string]string{intent.KoordExtended: limits},
	}
	b.ctr = &lifecycle.Container{ID: "c", PodID: "b", Name: "a", CgroupsPath: "/kubepods/podub/c"}
	b.ctr.Resources.Memory.Limit = lifecycle.Some(int64(1 << 30))
	b.event(lifecycle.RunPodSandbox, nil)
	return b
}

func (b *batch) event(kind lifecycle.Kind, asked *lifecycle.Resources) Answer {
	b.t.Helper()
	ev := lifecycle.Event{Kind: kind, Pod: b.pod, Requested: asked}
	if kind != lifecycle.RunPodSandbox {
		ev.Container = b.ctr
	}
	defer b.Flush()
	ans, err := b.Handle(b.t.Context(), crio{}, ev)
	if err != nil {
		b.t.Fatal(err)
	}
	return ans
}

func (b *batch) memory() api.Value {
	b.t.Helper()
	all, _ := nodeview.Explain(b, "shop", "batch", "a")
	for _, v := range all[0].Values {
		if v.Field == lifecycle.MemoryLimit.String() {
			return v
		}
	}
	b.t.Fatalf("no memory limit is decided: %+v", all[0].Values)
	return api.Value{}
}

func carriesMemory(ans Answer) bool {
	return slices.ContainsFunc(ans.Values, func(v lifecycle.Value) bool { return v.Field == lifecycle.MemoryLimit })
}

const noLimit = `{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"500"},"limits":{"kubernetes.io/batch-cpu":"500"}}}}`

// TestKernelOnlyValues: a value that the runtime would refuse is not sent to it, neither at the
// creation nor with a kubelet's update. It is in the kernel, and explain reports that.
func TestKernelOnlyValues(t *testing.T) {
	b := newBatch(t, noLimit)
	if ans := b.event(lifecycle.CreateContainer, nil); carriesMemory(ans) {
		t.Errorf("the creation would fail: %v", ans.Values)
	}
	const why = "only in the kernel: cri-o 1.36.3 refuses memory.limit -1 in the creation of a container: it accepts 12582912 and more"
	if v := b.memory(); v.Applied || v.Channel != "kernel" || v.Note != why+"; the agent writes the value when the container starts" {
		t.Errorf("explained as %+v", v)
	}
	for _, dir := range []string{"kubepods", "kubepods/podub", "kubepods/podub/c"} {
		if err := b.kernel.MkdirRunc(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.kernel.WriteFile("kubepods/podub/c/memory.max", []byte("1073741824")); err != nil {
		t.Fatal(err)
	}
	b.event(lifecycle.StartContainer, nil)
	if v := b.memory(); !v.Applied || !strings.HasPrefix(v.Note, why) {
		t.Errorf("explained as %+v", v)
	}
	if got, _ := b.kernel.ReadFile("kubepods/podub/c/memory.max"); strings.TrimSpace(string(got)) != "max" {
		t.Errorf("the kernel has %s", got)
	}
	asked := &lifecycle.Resources{Memory: lifecycle.Memory{Limit: lifecycle.Some(int64(1 << 29))}}
	if ans := b.event(lifecycle.UpdateContainer, asked); carriesMemory(ans) {
		t.Errorf("the kubelet's update would fail: %v", ans.Values)
	}
	if v := b.memory(); !strings.Contains(v.Note, "in a kubelet's update") {
		t.Errorf("explained as %+v", v)
	}
}

// TestLoweredMemory: a lower limit is sent with a kubelet's update only when it is in force,
// because the update would fail if more memory is in use.
func TestLoweredMemory(t *testing.T) {
	const limits = `{"containers":{"a":{"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"}}}}`
	b := newBatch(t, limits)
	if ans := b.event(lifecycle.CreateContainer, nil); !carriesMemory(ans) {
		t.Errorf("not sent: %v", ans.Values)
	}
	asked := &lifecycle.Resources{Memory: lifecycle.Memory{Limit: lifecycle.Some(int64(1 << 29))}}
	if ans := b.event(lifecycle.UpdateContainer, asked); !carriesMemory(ans) {
		t.Errorf("the limit in force is not sent: %v", ans.Values)
	}
	c, memory := b.node.track("c"), lifecycle.Value{Field: lifecycle.MemoryLimit}
	d, _ := c.find(memory)
	d.Applied = false // as if the kernel had refused it
	c.noteResult(memory, d)
	c.Store(lifecycle.MemoryLimit, "1073741824")
	if ans := b.event(lifecycle.UpdateContainer, asked); carriesMemory(ans) {
		t.Errorf("the kubelet's update would fail: %v", ans.Values)
	}
	if v := b.memory(); !strings.Contains(v.Note, "not sent with the kubelet's update") {
		t.Errorf("explained as %+v", v)
	}
}

// TestReleaseNamesStaleCopies: a release names a runtime copy that it cannot restore; otherwise
// "0 left" would be wrong.
func TestReleaseNamesStaleCopies(t *testing.T) {
	const limits = `{"containers":{"a":{"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"}}}}`
	for name, tc := range map[string]struct {
		to    Carrier
		has   Runtime
		stale []string
	}{
		"none":        {crio{}, nil, []string{"cpu.quota: no runtime is connected", "memory.limit: no runtime is connected"}},
		"taken":       {crio{}, &acceptingRuntime{}, nil},
		"taken late":  {crio{}, slow{&acceptingRuntime{}}, nil}, // the copy is being sent, so it is not in the queue
		"refused":     {crio{}, refusing{}, []string{"cpu.quota: a runtime did not accept the original value -1", "memory.limit: a runtime did not accept the original value -1"}},
		"not sayable": {throughCRI{}, &acceptingRuntime{}, []string{"memory.limit: cri-o 1.36.3 refuses memory.limit -1 in an update that the agent sends"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBatch(t, limits)
			b.ctr.Resources = lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(2))}}
			b.event(lifecycle.CreateContainer, nil)
			for _, dir := range []string{"kubepods", "kubepods/podub", "kubepods/podub/c"} {
				if err := b.kernel.MkdirRunc(dir); err != nil {
					t.Fatal(err)
				}
			}
			b.event(lifecycle.StartContainer, nil)
			if tc.has != nil {
				b.Attached(tc.to, tc.has)
			}
			policy := b.node.state.Policy
			policy.Hooks, policy.PlacementOn = nil, false
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { // as Run does on an idle node
				for ctx.Err() == nil {
					if b.sendCopy(ctx, always) {
						continue
					}
					select {
					case <-b.node.queue.Due.C:
					case <-ctx.Done():
					}
				}
			}()
			r := b.Release(ctx, policy)
			var got []string
			for _, k := range r.Stale {
				got = append(got, k.Setting+": "+k.Why)
				if k.Owner != "shop/batch/a" || k.Cgroup != "kubepods/podub/c" {
					t.Errorf("%+v does not name the container", k)
				}
			}
			if len(got) != len(tc.stale) || (r.Unrestored() > 0) != (len(tc.stale) > 0) {
				t.Fatalf("stale: %q (%d), want %q", got, r.Unrestored(), tc.stale)
			}
			for i, want := range tc.stale {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("stale: %q, want %q", got[i], want)
				}
			}
		})
	}
}

// slow takes longer for an update than awaitCopies waits between two checks.
type slow struct{ Runtime }

func (s slow) Update(ctx context.Context, all []Settings) ([]string, error) {
	late := time.NewTimer(150 * time.Millisecond)
	defer late.Stop()
	select {
	case <-late.C:
	case <-ctx.Done():
	}
	return s.Runtime.Update(ctx, all)
}

// throughCRI is an attachment to CRI-O over the CRI.
type throughCRI struct{ anything }

func (throughCRI) Capabilities() Capabilities { return toCRIO(runtimes.CRI) }
