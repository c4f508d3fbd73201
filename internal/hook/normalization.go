package hook

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// Ratio is a positive number in hundredths: Ratio(120) means 1.20. The zero Ratio means 1.
type Ratio int64

// maxRatio is the highest ratio. No CPU is a hundred times as fast as another.
const maxRatio = 100 * 100

// ParseRatio reads a decimal with at most two places, such as "1.20".
func ParseRatio(text string) (Ratio, error) {
	whole, places, dotted := strings.Cut(text, ".")
	if whole == "" || len(whole) > 3 || len(places) > 2 || dotted && places == "" || strings.Trim(whole+places, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not a number with at most two decimal places", text)
	}
	n, err := strconv.ParseInt(whole+(places + "00")[:2], 10, 64)
	if err != nil || n <= 0 || n > maxRatio {
		return 0, fmt.Errorf("%q is out of range: want a number above 0 and at most %d", text, maxRatio/100)
	}
	return Ratio(n), nil
}

// String returns the ratio in the form that ParseRatio reads.
func (r Ratio) String() string { return fmt.Sprintf("%d.%02d", r/100, r%100) }

// Divide returns v / r, rounded up. If v is so large that the multiplication could overflow, Divide returns v; no CPU
// quota is so large.
func (r Ratio) Divide(v int64) int64 {
	if r <= 0 || v > 1<<50 {
		return v
	}
	return (v*100 + int64(r) - 1) / int64(r)
}

// Normalization lowers CPU quotas on nodes with fast CPUs. The authors of CPU limits assume CPUs of a reference speed,
// and this node's CPUs are faster. The formula is that of Koordinator 1.7, plugin CPUNormalization, and of plugin
// BatchResource for batch limits.
type Normalization struct {
	// Ratio is the speed of this node's CPUs, divided by the speed that the authors of CPU limits assume. With a Ratio
	// of 1 or less the hook sets nothing.
	Ratio Ratio
}

// NormalizationOptions tunes the CPU normalization hook.
type NormalizationOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Ratio is the speed of this node's CPUs, divided by the speed of the CPUs that the authors of CPU limits assume.
	// The agent divides quotas by this ratio. A ratio of 1 or less changes nothing.
	Ratio string `json:"ratio" default:"1.00" check:"ratio"`
}

// WithAllFeatures returns the hook with every feature enabled.
func (NormalizationOptions) WithAllFeatures() Hook { return Normalization{} }

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
		Name:           "normalization",
		About:          "CPU quota, divided by the speed of this node's CPUs relative to the CPUs for which the limits were written",
		Stages:         lifetimeEvents(),
		Reads:          []string{intent.KoordQoSClass},
		Sets:           quota,
		SetsOnPod:      quota,
		KernelFeatures: []string{"cpu"},
		Compose:        "divides the quota in the runtime's request, or for batch pods the quota that the hook batch computes; quotas that the hook cpuset removes stay unlimited",
		Differs: []string{
			"always divides the last quota that the kubelet requested, so an update of only the cpuset does not divide the quota twice (Koordinator 1.7 divides its own result again)",
			"the quota of the pod's own cgroup is lowered only for batch pods. With a lower quota on other pods and cgroup v1, containers that are created while no agent runs could not start (koordinator issue 2047)",
			"the ratio comes from hooks.normalization.ratio. The agent reads the ratio in the annotation of the Node only with cluster.config.alsoRead: [koordinator]",
		},
	}
}

// Propose divides the quota of containers of shared pods and of pods without a class. For batch pods and their
// containers, it divides only a quota that the hook batch sets. It does not divide the quota of containers that own
// their CPUs.
func (h Normalization) Propose(in *Input, out *Output) {
	if h.Ratio <= 100 || in.Pool == placement.Exclusive {
		return
	}
	s := Scale{Field: lifecycle.CPUQuota, Divisor: h.Ratio, Why: lifecycle.Reason{
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
