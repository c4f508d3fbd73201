package api

import (
	"fmt"
	"time"
)

// ResourcePlugins is the state of the node's QoS resource plugins. Plugins is sorted by resource.
type ResourcePlugins struct {
	// Error says why plugins cannot register; "" if they can.
	Error   string           `json:"error,omitempty"`
	Plugins []ResourcePlugin `json:"plugins,omitempty"`
	// Refused are the last registrations that the agent refused.
	Refused []RefusedPlugin `json:"refused,omitempty"`
}

// ResourcePlugin is one resource plugin.
type ResourcePlugin struct {
	Resource  string `json:"resource"`
	Socket    string `json:"socket"`
	Answering bool   `json:"answering"` // the plugin answered its last call, and its socket exists
	// Hints, Reconciled and PreStart say which optional calls the plugin wants: topology hints, reconciliation of its
	// allocations, and a call before a container starts.
	Hints      bool `json:"hints,omitempty"`
	Reconciled bool `json:"reconciled,omitempty"`
	PreStart   bool `json:"preStart,omitempty"`
	// Pods counts the pods that have an allocation of the resource. PendingRemovals counts the ended pods whose
	// allocation the plugin has not released yet.
	Pods            int    `json:"pods"`
	PendingRemovals int    `json:"pendingRemovals,omitempty"`
	Replaced        int    `json:"replaced,omitempty"` // earlier registrations of the resource
	Calls           uint64 `json:"calls"`
	Failed          uint64 `json:"failed"`
	Error           string `json:"error,omitempty"` // the last error
}

// RefusedPlugin is a registration that the agent refused.
type RefusedPlugin struct {
	At       time.Time `json:"at"`
	Resource string    `json:"resource"`
	Socket   string    `json:"socket,omitempty"`
	Reason   string    `json:"reason"`
}

// State returns the state with its reason, for users.
func (p ResourcePlugin) State() string {
	s := "answers"
	if !p.Answering {
		s = "does not answer"
		if p.Calls == 0 && p.Error == "" {
			s = "was not called yet"
		}
	}
	s += fmt.Sprintf(", allocations for %d pods", p.Pods)
	if p.PendingRemovals > 0 {
		s += fmt.Sprintf(", %d ended pods not released yet", p.PendingRemovals)
	}
	if p.Replaced > 0 {
		s += fmt.Sprintf(", replaced %d times", p.Replaced)
	}
	if p.Calls > 0 {
		s += fmt.Sprintf(", %d calls, %d failed", p.Calls, p.Failed)
	}
	return withReason(s, p.Error)
}
