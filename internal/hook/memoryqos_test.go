package hook

import (
	"maps"
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestMemoryQoS: memory.high is the part of the limit that a class leaves in memory, in whole pages, and swap is
// unlimited. Source of the formula: nri-plugins 0.14, plugin memory-qos.
func TestMemoryQoS(t *testing.T) {
	const limit = 100 << 20
	hook := MemoryQoS{SwapPercent: map[string]int{"bronze": 20, "gold": 0}, Files: []string{swapMaxFile}}
	for name, c := range map[string]struct {
		hook    MemoryQoS
		class   string
		high    intent.MemoryBytes // named by the pod; 0 for none
		swap    intent.MemoryBytes
		limit   int64
		decided int64 // by another hook
		want    map[string]string
		problem string
	}{
		"a class":                {hook: hook, class: "bronze", limit: limit, want: map[string]string{memoryHighFile: "83886080", swapMaxFile: "max"}},
		"nothing is swapped":     {hook: hook, class: "gold", limit: limit, want: map[string]string{memoryHighFile: "104857600", swapMaxFile: "max"}},
		"whole pages":            {hook: hook, class: "bronze", limit: 10000, want: map[string]string{memoryHighFile: "4096", swapMaxFile: "max"}},
		"another hook's limit":   {hook: hook, class: "bronze", limit: limit, decided: limit / 2, want: map[string]string{memoryHighFile: "41943040", swapMaxFile: "max"}},
		"its own swap":           {hook: hook, class: "bronze", swap: 8192, limit: limit, want: map[string]string{memoryHighFile: "83886080", swapMaxFile: "8192"}},
		"swap alone":             {hook: hook, swap: intent.NoLimit, want: map[string]string{swapMaxFile: "max"}},
		"a file not in the list": {hook: hook, high: 4096, problem: "hooks.memoryQoS.files does not list memory.high"},
		"no such class":          {hook: hook, class: "lead", limit: limit, problem: "no class of hooks.memoryQoS.classes has this name"},
		"no limit":               {hook: hook, class: "bronze", problem: "a memory class needs a memory limit, and the container has none"},
		"cgroup v1": {
			hook: MemoryQoS{Files: []string{swapMaxFile}, KernelFiles: map[string]lifecycle.Support{swapMaxFile: lifecycle.NotSupported}},
			swap: 4096, limit: limit, problem: "this kernel has no memory.swap.max, which needs cgroup v2",
		},
	} {
		in := &Input{Pod: &lifecycle.Pod{}, Container: "a", Intent: &intent.Pod{}, Pristine: &lifecycle.Resources{Memory: lifecycle.Memory{Limit: lifecycle.Some(c.limit)}}}
		if c.class != "" {
			in.Intent.MemoryClass = podWide(c.class)
		}
		if c.high != 0 {
			in.Intent.MemoryHigh = podWide(c.high)
		}
		if c.swap != 0 {
			in.Intent.SwapMax = podWide(c.swap)
		}
		var out Output
		if c.decided != 0 {
			out.setNumber(in, lifecycle.MemoryLimit, c.decided, lifecycle.Reason{})
		}
		c.hook.Propose(in, &out)
		files, problem := map[string]string{}, ""
		for _, v := range out.Values {
			if v.Field == lifecycle.Unified {
				files[v.Key] = v.Text
			}
		}
		for _, p := range out.Problems {
			problem = p.Reason
		}
		if !maps.Equal(files, c.want) || problem != c.problem {
			t.Errorf("%s: %v, problem %q; want %v, %q", name, files, problem, c.want, c.problem)
		}
	}
	pod := &Input{Pod: &lifecycle.Pod{}, Intent: &intent.Pod{MemoryClass: podWide("bronze")}}
	var out Output
	if hook.Propose(pod, &out); len(out.Values) > 0 || len(out.Problems) > 0 {
		t.Errorf("for the pod itself: %v, %v", out.Values, out.Problems)
	}
}
