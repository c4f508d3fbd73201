package api

import (
	"cmp"
	"time"
)

// Cluster is the state of what the agent reads from and writes to the Kubernetes API server.
type Cluster struct {
	Server string `json:"server,omitempty"`
	Node   string `json:"node,omitempty"` // the name of the Node object
	// Reached is when the server last answered; the zero time if it never did.
	Reached time.Time `json:"reached,omitzero"`
	// Error is the error of the last request; "" if it succeeded, or if the server refused only that request.
	Error string        `json:"error,omitempty"`
	Parts []ClusterPart `json:"parts,omitempty"`
	// Events counts Kubernetes events by result: written, limited (the object had too many), full (dropped for newer
	// events) and refused (by the API server).
	Events map[string]uint64 `json:"events,omitempty"`
	// Config is the configuration from the API server; nil if the agent does not read it.
	Config *ClusterConfig `json:"config,omitempty"`
}

// ClusterPart is one service that uses the API server: a report, or a source of configuration or pods.
type ClusterPart struct {
	Name  string `json:"name"`  // such as NodeResourceTopology
	State string `json:"state"` // a phrase such as "written 3 m ago"
	// Error is why the part does not work; "" if it works.
	Error string `json:"error,omitempty"`
	// LeftTo is the program that writes the object instead of the agent; "" if the agent writes it. This is no error.
	// Note says what the user can do about it.
	LeftTo string `json:"leftTo,omitempty"`
	Note   string `json:"note,omitempty"`
	// Written, Skipped and Failed count the writes to the API server. A write is skipped if nothing has changed. An event
	// is skipped if its object had too many.
	Written uint64 `json:"written"`
	Skipped uint64 `json:"skipped"`
	Failed  uint64 `json:"failed"`
}

// Text returns the state with its reason, for users.
func (p ClusterPart) Text() string { return withReason(p.State, cmp.Or(p.Error, p.Note)) }
