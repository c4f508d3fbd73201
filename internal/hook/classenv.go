package hook

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// ClassEnv tells containers the class of their pod by an environment variable.
type ClassEnv struct{ Variable string }

// ClassEnvOptions tunes the hook that tells containers their class.
type ClassEnvOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Variable is the environment variable that has the class.
	Variable string `json:"variable" default:"TRIMTAB_CLASS" check:"class"`
}

// Most is the hook with all that can be switched on.
func (ClassEnvOptions) Most() Hook { return ClassEnv{} }

// Make makes the hook for a node.
func (o ClassEnvOptions) Make(_ Node, _ *Options) (Hook, error) {
	return ClassEnv{Variable: o.Variable}, nil
}

// Info describes the hook.
func (ClassEnv) Info() Info {
	return Info{
		Name:    "classEnv",
		About:   "the class of the pod as an environment variable",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.KoordQoSClass},
		Sets:    []lifecycle.Field{lifecycle.Env},
		Compose: "the only hook that sets its variable",
		Differs: []string{"no other system does this"},
	}
}

// Propose gives a container of a pod with a class its variable.
func (h ClassEnv) Propose(in *Input, out *Output) {
	class := in.Intent.Class
	if in.Container == "" || h.Variable == "" || !class.Said() {
		return
	}
	out.env(h.Variable, class.V.String(), lifecycle.Reason{Hook: "classEnv", Source: class.Key, Text: "the pod's class"})
}
