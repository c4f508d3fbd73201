package hook

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

func rubikPod(preemptable bool) *intent.Pod {
	return &intent.Pod{Preemptable: intent.Sourced[bool]{V: preemptable, Key: intent.RubikPreemptable}}
}

func limited(memory int64) *lifecycle.Resources {
	r := &lifecycle.Resources{}
	r.Memory.Limit = lifecycle.Some(memory)
	return r
}

// TestPreemption: what preemptable pods yield, what is protected, and which pods are not changed.
func TestPreemption(t *testing.T) {
	all := Preemption{Yield: YieldIdle, MemoryHigh: 80, MemoryLow: 50, MemoryMin: 10, KillTogether: true}
	v1 := all
	v1.KernelFiles = map[string]lifecycle.Support{memoryHighFile: lifecycle.NotSupported, memoryLowFile: lifecycle.NotSupported, memoryMinFile: lifecycle.NotSupported, oomGroupFile: lifecycle.NotSupported}
	old := v1
	old.KernelFiles = maps.Clone(v1.KernelFiles)
	old.KernelFiles[cpuIdleFile] = lifecycle.NotSupported
	batch := rubikPod(true)
	batch.Batch = intent.Sourced[map[string]intent.Batch]{V: map[string]intent.Batch{}, Key: intent.KoordExtended}
	kept := rubikPod(false)
	kept.ProtectionRefusedBy = "default"
	for _, c := range []struct {
		name      string
		hook      Preemption
		pod       *intent.Pod
		res       *lifecycle.Resources
		container string
		want      map[string]string
		problems  int
	}{
		{name: "did not opt in", hook: all, pod: &intent.Pod{Class: intent.Sourced[intent.Class]{V: intent.Reclaimed, Key: intent.KoordQoSClass}}, res: limited(1 << 30)},
		{
			name: "yields", hook: all, pod: rubikPod(true), res: limited(1 << 30),
			want: map[string]string{"unified cpu.idle": "1", "unified memory.high": "858992640", "unified memory.oom.group": "1"},
		},
		{name: "yields, no limit", hook: all, pod: rubikPod(true), res: limited(-1), want: map[string]string{"unified cpu.idle": "1", "unified memory.oom.group": "1"}},
		{name: "yields, no resources reported", hook: all, pod: rubikPod(true), want: map[string]string{"unified cpu.idle": "1", "unified memory.oom.group": "1"}},
		{name: "its containers do not", hook: all, pod: rubikPod(true), res: limited(1 << 30), container: "a"},
		{name: "version 1", hook: v1, pod: rubikPod(true), res: limited(1 << 30), want: map[string]string{"unified cpu.idle": "1"}},
		{name: "no cpu.idle", hook: old, pod: rubikPod(true), res: limited(1 << 30), want: map[string]string{"cpu.shares": "2"}},
		{name: "no cpu.idle, batch", hook: old, pod: batch, res: limited(1 << 30)},
		{name: "by weight", hook: Preemption{Yield: YieldWeight}, pod: rubikPod(true), want: map[string]string{"cpu.shares": "2"}},
		{name: "no way", hook: Preemption{}, pod: rubikPod(true)},
		{name: "kept", hook: all, pod: rubikPod(false), res: limited(1 << 30), want: map[string]string{"unified memory.min": "107372544", "unified memory.low": "536870912"}},
		{name: "kept for a container", hook: all, pod: rubikPod(false), res: limited(8192), container: "a", want: map[string]string{"unified memory.low": "4096"}},
		{name: "nothing kept without a limit", hook: all, pod: rubikPod(false)},
		{name: "refused", hook: all, pod: kept, res: limited(1 << 30), problems: 2},
		{name: "nothing to refuse", hook: Preemption{Yield: YieldIdle}, pod: kept, res: limited(1 << 30)},
		{name: "the largest limit", hook: all, pod: rubikPod(true), res: limited(1<<63 - 1), want: map[string]string{"unified cpu.idle": "1", "unified memory.high": "7378697629483819008", "unified memory.oom.group": "1"}},
	} {
		if c.want == nil {
			c.want = map[string]string{}
		}
		in := &Input{Intent: c.pod, Pristine: c.res, Container: c.container}
		if diff := cmp.Diff(c.want, values(in, c.hook)); diff != "" {
			t.Error(c.name, diff)
		}
		var out Output
		c.hook.Propose(in, &out)
		if len(out.Problems) != c.problems {
			t.Errorf("%s: %v", c.name, out.Problems)
		}
	}
}

func TestBurst(t *testing.T) {
	pod := &intent.Pod{Burst: intent.Sourced[int64]{V: 2000, Key: intent.RubikBurst}}
	limit := func(milli int64) *lifecycle.PodSpec {
		limits := lifecycle.Amounts{lifecycle.ResourceCPU: milli}
		return &lifecycle.PodSpec{Containers: []lifecycle.ContainerSpec{{Name: "a", Limits: limits}, {Name: "b"}}}
	}
	whole := limit(500)
	whole.Limits = lifecycle.Amounts{lifecycle.ResourceCPU: 30}
	for _, c := range []struct {
		name      string
		hook      Burst
		container string
		bursts    int64
		period    uint64
		spec      *lifecycle.PodSpec
		want      string
	}{
		{name: "a container", container: "a", want: "2000"},
		{name: "whose spec says more", container: "a", spec: limit(500), want: "2000"},
		{name: "whose spec says less", container: "a", spec: limit(15), want: "1500"},
		{name: "less than the kernel takes", container: "a", spec: limit(1), want: "1000"},
		{name: "of a shorter period", container: "a", spec: limit(150), period: 10_000, want: "1500"},
		{name: "whose spec says no limit", container: "b", spec: limit(15), want: "2000"},
		{name: "that the spec has not", container: "c", spec: limit(15), want: "2000"},
		{name: "more than there is", container: "a", spec: limit(1<<63 - 1), want: "2000"},
		{name: "a pod of two", bursts: 4000, spec: limit(15), want: "4000"},
		{name: "a pod with a limit of its own", bursts: 4000, spec: whole, want: "3000"},
		{name: "a pod without containers", want: "none"},
		{name: "no such file", hook: Burst{KernelSupport: lifecycle.Finding{Support: lifecycle.NotSupported, Why: "the kernel has no cpu.max.burst"}}},
	} {
		want := map[string]string{}
		if c.want != "" && c.want != "none" {
			want["unified cpu.max.burst"] = c.want
		}
		in := &Input{Intent: pod, Container: c.container, Spec: c.spec, BurstSum: c.bursts, Pristine: &lifecycle.Resources{}}
		in.Pristine.CPU.Period = lifecycle.Opt[uint64]{V: c.period, Set: c.period > 0}
		if diff := cmp.Diff(want, values(in, c.hook)); diff != "" {
			t.Error(c.name, diff)
		}
		var out Output
		c.hook.Propose(in, &out)
		if (len(out.Problems) == 1) != (c.want == "") {
			t.Errorf("%s: %v", c.name, out.Problems)
		}
	}
	if got := values(&Input{Intent: &intent.Pod{}, Container: "a"}, Burst{}); len(got) > 0 {
		t.Errorf("a pod that did not ask: %v", got)
	}
}
