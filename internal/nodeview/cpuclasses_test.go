package nodeview

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/cpuclass"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/report/api"
)

// TestClassResults: CPUs of which the same is known are said together, and a class that the kernel does not
// hold is never shown as in force.
func TestClassResults(t *testing.T) {
	t.Parallel()
	v := &View{CPUClasses: cpuclass.Report{
		InForce: []cpuclass.AppliedClass{
			{Class: "fast", CPUs: []int{0, 1, 2}, Files: []string{"scaling_governor performance", "scaling_max_freq 3500000"}},
			{Class: "slow", CPUs: []int{3}, Files: []string{"scaling_max_freq 1000000"}},
		},
		Faults: []cpuclass.Fault{{Class: "fast", CPUs: []int{4, 5}, Reason: "refused"}, {CPUs: []int{6}, Reason: "not restored"}},
	}}
	of := placement.ClassCPUs{Class: lifecycle.CPUClass{Name: "fast"}, Type: "latency"}
	in := func(cpus string) api.ContainerCPUClass {
		return api.ContainerCPUClass{CPUs: cpus, Class: "fast", BalloonType: "latency"}
	}
	held, other, refused, kept, pending := in("1-2"), in("3"), in("4-5"), in("6"), in("7")
	held.InForce, held.Kernel = true, "scaling_governor performance, scaling_max_freq 3500000"
	other.Reason = "these CPUs have the class slow, because CPUs of a balloon use the same cpufreq policy"
	refused.Reason, kept.Reason, pending.Reason = "refused", "not restored", "the class is not written yet"
	if d := cmp.Diff([]api.ContainerCPUClass{held, other, refused, kept, pending}, v.classResults(of, []int{1, 2, 3, 4, 5, 6, 7})); d != "" {
		t.Error(d)
	}
	v.Observed = &api.Observed{}
	seen := in("1-2")
	seen.Reason = "the agent writes nothing in mode observe"
	if d := cmp.Diff([]api.ContainerCPUClass{seen}, v.classResults(of, []int{1, 2})); d != "" {
		t.Error(d)
	}
}

// TestClassTexts: what explain says of the classes of a container's CPUs.
func TestClassTexts(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]api.ContainerCPUClass{
		"CPUs 1: none, they keep the kernel's own values":                                         {CPUs: "1"},
		"CPUs 1: slow, of CPUs that no balloon has; the kernel shows scaling_governor powersave":  {CPUs: "1", Class: "slow", InForce: true, Kernel: "scaling_governor powersave"},
		"CPUs 1: fast, of the balloon type latency; NOT in force: the hardware has no C-state C9": {CPUs: "1", Class: "fast", BalloonType: "latency", Reason: "the hardware has no C-state C9"},
	} {
		if got, fault := c.Text(); got != want || fault != (c.Reason != "") {
			t.Errorf("%q (fault %t), want %q", got, fault, want)
		}
	}
}
