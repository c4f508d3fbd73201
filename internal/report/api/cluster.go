package api

import (
	"cmp"
	"time"
)

// Cluster is the state of the agent's work with the Kubernetes API server.
type Cluster struct {
	Server string `json:"server,omitempty"`
	Node   string `json:"node,omitempty"` // the name of the Node object
	// Reached is when the server last answered; zero for never.
	Reached time.Time `json:"reached,omitzero"`
	// Error is the error of the last request; "" if it succeeded.
	Error string        `json:"error,omitempty"`
	Parts []ClusterPart `json:"parts,omitempty"`
	// Events counts events by result: written, limited (their object had too many), full (newer events took their
	// place) and refused by the API server.
	Events map[string]uint64 `json:"events,omitempty"`
	// Config is the configuration from the API server; nil if the agent does not read it.
	Config *ClusterConfig `json:"config,omitempty"`
}

// ClusterPart is one service that uses the API server: a report, or a source of configuration or pods.
type ClusterPart struct {
	Name  string `json:"name"`  // of a bounded set, such as NodeResourceTopology
	State string `json:"state"` // in words, such as "written 3 m ago"
	// Error is why it does not work; "" if it works.
	Error string `json:"error,omitempty"`
	// LeftTo is the program that writes the object in the agent's place, which is no error; "" if the agent writes
	// it. Note says what the user can do about it.
	LeftTo string `json:"leftTo,omitempty"`
	Note   string `json:"note,omitempty"`
	// Numbers of writes to the API server: done, skipped because nothing had changed, and failed.
	Written uint64 `json:"written"`
	Skipped uint64 `json:"skipped"`
	Failed  uint64 `json:"failed"`
}

// Text is the state with its reason, for users.
func (p ClusterPart) Text() string {
	if why := cmp.Or(p.Error, p.Note); why != "" {
		return p.State + ": " + why
	}
	return p.State
}
