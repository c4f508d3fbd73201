// Package logkey owns the keys of log lines, so that a search for one finds
// every line about it. It logs nothing itself.
package logkey

import (
	"fmt"
	"log/slog"
)

// The keys. A line names its event first (Op), what it is about next, and Err,
// where there is one, last.
const (
	Op        = "op"  // of one event: eight hex digits, in the journal too
	Pod       = "pod" // its name; its namespace is Namespace
	Namespace = "ns"
	Container = "container" // its name, or its id where only that is known
	CPUs      = "cpus"      // a kernel list
	Nodes     = "nodes"     // NUMA nodes, a kernel list
	Err       = "err"       // last

	Event      = "event" // kind of event
	Step       = "step"  // that an event reached: gather, decide, route, apply, confirm
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
	Kind       = "kind" // of a problem: error, refused or warning
	Hook       = "hook"
	Hint       = "hint" // what to do
	Panic      = "panic"
	Stack      = "stack"
	In         = "in" // where a panic was contained
	After      = "after"
	Level      = "level" // of a library's own message
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
	Cut        = "cut"    // calls under way were not waited for any longer
)

// ID names one event in logs, journal and answers. It is a counter's value:
// unique while the process lives, and in the order events were taken up.
type ID uint32

// String returns eight hex digits.
func (i ID) String() string { return fmt.Sprintf("%08x", uint32(i)) }

// LogValue formats the id only where a line is written.
func (i ID) LogValue() slog.Value { return slog.StringValue(i.String()) }
