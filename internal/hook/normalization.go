package hook

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// Ratio is a positive number in hundredths; the zero Ratio is 1.
type Ratio int64

// maxRatio limits ratios: no CPU is a hundred times as fast as another.
const maxRatio = 100 * 100

// ParseRatio reads a decimal with at most two places, such as "1.20".
func ParseRatio(text string) (Ratio, error) {
	whole, places, dotted := strings.Cut(text, ".")
	if whole == "" || len(whole) > 3 || len(places) > 2 || dotted && places == "" || strings.Trim(whole+places, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not a number with at most two decimal places", text)
	}
	n, err := strconv.ParseInt(whole+(places + "00")[:2], 10, 64)
	if err != nil || n <= 0 || n > maxRatio {
		return 0, fmt.Errorf("%q is not above 0 and at most %d", text, maxRatio/100)
	}
	return Ratio(n), nil
}

// String returns the ratio in the form that ParseRatio reads.
func (r Ratio) String() string { return fmt.Sprintf("%d.%02d", r/100, r%100) }

// Divide returns v / r, rounded up. Numbers too large for any quota stay unchanged.
func (r Ratio) Divide(v int64) int64 {
	if r <= 0 || v > 1<<50 {
		return v
	}
	return (v*100 + int64(r) - 1) / int64(r)
}

// Normalization lowers CPU quotas on nodes with faster CPUs than the CPUs that the limits were
// written for. Formula: Koordinator 1.7, plugin CPUNormalization, and for batch limits
// BatchResource.
type Normalization struct {
	// Ratio is how much faster this node's CPUs are. Up to 1 the hook does nothing.
	Ratio Ratio
}

// NormalizationOptions tunes the CPU normalization hook.
type NormalizationOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Ratio is how much faster this node's CPUs are than those that CPU limits
	// are written for: quotas are divided by it. 1 and less change nothing.
	Ratio string `json:"ratio" default:"1.00" check:"ratio"`
}

// AllOn is the hook with everything switched on.
func (NormalizationOptions) AllOn() Hook { return Normalization{} }

// Make makes the hook for a node.
func (o NormalizationOptions) Make(_ Node, _ *Options) (Hook, error) {
	ratio, err := ParseRatio(o.Ratio)
	if err != nil {
		return nil, fmt.Errorf("hooks.normalization.ratio: %w", err)
	}
	return Normalization{Ratio: ratio}, nil
}

// Info describes the hook.
func (Normalization) Info() Info {
	quota := []lifecycle.Field{lifecycle.CPUQuota}
	return Info{
		Name:    "normalization",
		About:   "CPU quota divided by the speed of this node's CPUs, relative to a basic CPU",
		Stages:  lifetimeEvents(),
		Reads:   []string{intent.KoordQoSClass},
		Sets:    quota,
		Pod:     quota,
		Kernel:  []string{"cpu"},
		Compose: "scales the quota that the runtime requested, or for batch pods the quota that batch computes; quotas that cpuset lifts stay unlimited",
		Differs: []string{
			"always scales the last request of the kubelet, so an update of only the cpuset does not scale twice (Koordinator 1.7 scales its own result again)",
			"the quota of the pod itself is lowered only for batch pods. If it were lowered for others, containers created while no agent runs could not start with cgroup v1 (koordinator issue 2047)",
			"the ratio comes from hooks.normalization.ratio, not from the Node object",
		},
	}
}

// Propose scales the quota of shared pods, of pods without a class, and of batch pods to which
// batch gives a quota.
func (h Normalization) Propose(in *Input, out *Output) {
	if h.Ratio <= 100 || in.Pool == placement.Own {
		return
	}
	s := Scale{Field: lifecycle.CPUQuota, Factor: h.Ratio, Why: lifecycle.Reason{
		Hook: "normalization", Source: "hooks.normalization.ratio", Text: "divided by " + h.Ratio.String(),
	}}
	switch in.Intent.Class.V {
	case intent.Reclaimed:
		s.OnlyDecided = true
	case intent.None, intent.Shared:
		if in.Container == "" {
			return
		}
	default:
		return
	}
	out.Scales = append(out.Scales, s)
}
