// Package logkey owns the keys of log lines. Because all packages use the same keys, a search for a key finds every
// line about it. It logs nothing itself.
package logkey

import (
	"fmt"
	"log/slog"
)

// The keys. A line has its event first (Op), then its object, and the error (Err) last, if there is one.
const (
	Op        = "op"  // of one event: eight hex digits, as in the journal
	Pod       = "pod" // its name; its namespace is Namespace
	Namespace = "ns"
	Container = "container" // its name, or its id if only that is known
	CPUs      = "cpus"      // a kernel list
	Nodes     = "nodes"     // NUMA nodes, a kernel list
	Err       = "err"       // last

	Event      = "event" // kind of event
	Step       = "step"  // the step that an event reached: gather, decide, route, apply, confirm
	Mode       = "mode"  // attachment
	From       = "from"  // the attachment before
	Runtime    = "runtime"
	State      = "state"
	Owner      = "owner" // container or sandbox id
	Field      = "field"
	Value      = "value"
	Values     = "values"  // how many
	Changed    = "changed" // what others lost or got
	Key        = "key"     // annotation, label or configuration key
	Reason     = "reason"
	Kind       = "kind" // kind of a problem: error, refused or warning
	Hook       = "hook"
	Hint       = "hint" // what to do
	Panic      = "panic"
	Stack      = "stack"
	In         = "in" // the function in which a panic was recovered
	After      = "after"
	Level      = "level" // level of a library's own message
	Text       = "text"
	File       = "file"
	Socket     = "socket"
	Address    = "address"
	Generation = "generation"
	Config     = "config"
	Version    = "version"
	Commit     = "commit"
	YAML       = "yaml"
	Source     = "source" // of pod specs
	Pods       = "pods"   // how many
	Took       = "took"   // a duration
	Cut        = "cut"    // running calls for which the agent no longer waited
)

// ID names one event in logs, journal and answers. It is the value of a counter, so it is unique while the process
// lives, and gives the order in which the agent began to handle events.
type ID uint32

// String returns eight hex digits.
func (i ID) String() string { return fmt.Sprintf("%08x", uint32(i)) }

// LogValue formats the id only if a line is written.
func (i ID) LogValue() slog.Value { return slog.StringValue(i.String()) }
