package api

import (
	"cmp"
	"time"
)

// Cluster is the state of the agent's connection to the Kubernetes API server, and of the services that use it.
type Cluster struct {
	Server string `json:"server,omitempty"` // the address of the API server
	Node   string `json:"node,omitempty"`   // the name of the Node object
	// Reached is when the server last answered; the zero time if it never did.
	Reached time.Time `json:"reached,omitzero"`
	// Error is the error of the last request. It is "" if the request succeeded, or if the server answered and refused
	// the request.
	Error string        `json:"error,omitempty"`
	Parts []ClusterPart `json:"parts,omitempty"`
	// Events counts Kubernetes events by result: written, limited (the object had too many events), full (dropped to make
	// room for newer events) and refused (by the API server).
	Events map[string]uint64 `json:"events,omitempty"`
	// Config is the configuration from the API server; nil if the agent does not read it.
	Config *ClusterConfig `json:"config,omitempty"`
}

// ClusterPart is one service that uses the API server: a report, or a source of configuration or pods.
type ClusterPart struct {
	Name  string `json:"name"`  // such as NodeResourceTopology
	State string `json:"state"` // a phrase such as "written 3 m ago"
	// Error is why the service does not work; "" if the service works.
	Error string `json:"error,omitempty"`
	// LeftTo names another program that writes the object in place of the agent, which is no error. It is "" if the
	// agent writes the object. Note says what to do if the agent should write the object.
	LeftTo string `json:"leftTo,omitempty"`
	Note   string `json:"note,omitempty"`
	// Written, Skipped and Failed count the writes to the API server. A write is skipped if nothing has changed. An event
	// is skipped if its object had too many events.
	Written uint64 `json:"written"`
	Skipped uint64 `json:"skipped"`
	Failed  uint64 `json:"failed"`
}

// Text returns the state with its reason, for users.
func (p ClusterPart) Text() string { return withReason(p.State, cmp.Or(p.Error, p.Note)) }
