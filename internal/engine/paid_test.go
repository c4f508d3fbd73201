package engine

import (
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestNoCPUsReason: the reason names the request that is too small, not one that is large enough.
func TestNoCPUsReason(t *testing.T) {
	p := &Pod{Intent: &intent.Pod{QoS: intent.Burstable}}
	cpus := func(milli uint64) *lifecycle.Resources {
		return &lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some(milli * sharesOfCPU / 1000)}}
	}
	for name, tt := range map[string]struct {
		sum, requested *lifecycle.Resources
		want           string
	}{
		"both too small":      {cpus(500), cpus(250), "a CPU request of 0.5 is less than one whole CPU"},
		"container too small": {cpus(2500), cpus(500), "a CPU request of 0.5 is less than one whole CPU"},
		"pod not counted":     {nil, cpus(500), "a CPU request of 0.5 is less than one whole CPU"},
		"container without":   {cpus(2500), &lifecycle.Resources{}, "the number of CPUs is not known, because the container has no CPU request"},
		"no request":          {nil, &lifecycle.Resources{}, "the number of CPUs is not known, because neither the pod nor the container has a CPU request"},
	} {
		if got := noCPUsReason(p, tt.sum, tt.requested).Error(); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
