package hook

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// OOMScoreOptions are the options of the hook that sets the oom_score_adj that a pod requests for its containers. If
// memory runs out, the kernel kills the processes with the highest score first. The rules are those of Koordinator 1.8,
// plugin OOMScoreAdj.
type OOMScoreOptions struct {
	// Enabled switches the hook on. The hook is off by default, because with it
	// every author of a pod can make the kernel kill other pods first.
	Enabled bool `json:"enabled"`
}

// Info describes the hook.
func (OOMScoreOptions) Info() Info {
	return Info{
		Name:    "oomScore",
		About:   "which containers the kernel kills first if memory runs out",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.KoordOOMScoreSpec, intent.KoordOOMScore},
		Sets:    []lifecycle.Field{lifecycle.OOMScoreAdj},
		Compose: "no other hook sets this field",
		Differs: []string{
			"the score is set when the container is created, so every process has it from its first instruction (Koordinator writes the score later, for the processes that it finds)",
			"a running container keeps the score that it was created with",
			"values outside -1000 to 1000 are reported, not ignored",
		},
	}
}

// Propose sets a container's oom_score_adj. A score for the container has priority over a score for the pod.
func (OOMScoreOptions) Propose(in *Input, out *Output) {
	if in.Container == "" {
		return
	}
	why := lifecycle.Reason{Hook: "oomScore", Source: in.Intent.OOMScores.Key, Text: "requested for the container"}
	score, own := in.Intent.OOMScores.V[in.Container]
	switch {
	case own:
	case in.Intent.OOMScore.IsSet():
		score = in.Intent.OOMScore.V
		why.Source, why.Text = in.Intent.OOMScore.Key, "requested for the pod"
	default:
		return
	}
	out.setNumber(in, lifecycle.OOMScoreAdj, score, why)
}
