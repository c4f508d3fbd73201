package hook

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// OOMScore sets the oom_score_adj that a pod requests for its containers: it decides which
// process the kernel kills first when memory runs out. Rules: Koordinator 1.8, plugin
// OOMScoreAdj.
type OOMScore struct{}

// OOMScoreOptions tunes the OOM score hook.
type OOMScoreOptions struct {
	// Enabled switches the hook on. Off by default: every user who may write a pod's
	// annotations could have other pods killed first.
	Enabled bool `json:"enabled"`
}

// AllOn is the hook with everything switched on.
func (OOMScoreOptions) AllOn() Hook { return OOMScore{} }

// Make makes the hook for a node.
func (OOMScoreOptions) Make(_ Node, _ *Options) (Hook, error) {
	return OOMScore{}, nil
}

// Info describes the hook.
func (OOMScore) Info() Info {
	return Info{
		Name:    "oomScore",
		About:   "which containers the kernel kills first if memory runs out",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.KoordOOMScoreSpec, intent.KoordOOMScore},
		Sets:    []lifecycle.Field{lifecycle.OOMScoreAdj},
		Compose: "the only hook that sets it",
		Differs: []string{
			"set when the container is created, so every process has it from its first instruction (Koordinator writes it later, to the processes it finds)",
			"a running container keeps the score that it was created with",
			"values outside -1000 to 1000 are reported, not ignored",
		},
	}
}

// Propose sets a container's score: its own entry first, then the pod's.
func (OOMScore) Propose(in *Input, out *Output) {
	if in.Container == "" {
		return
	}
	why := lifecycle.Reason{Hook: "oomScore", Source: in.Intent.OOMScores.Key, Text: "the container's"}
	score, own := in.Intent.OOMScores.V[in.Container]
	switch {
	case own:
	case in.Intent.OOMScore.IsSet():
		score = in.Intent.OOMScore.V
		why.Source, why.Text = in.Intent.OOMScore.Key, "the pod's"
	default:
		return
	}
	out.number(in, lifecycle.OOMScoreAdj, score, why)
}
