// Package logkey has the keys of attributes in log lines. All packages use these keys, so a search for a key finds all
// lines with this attribute. The package itself logs nothing.
package logkey

import (
	"fmt"
	"log/slog"
)

// The keys. A line has first the id of its event (Op), then the pod or container, and last the error (Err), if there is
// one.
const (
	Op        = "op"  // id of the event: eight hex digits, as in the journal
	Pod       = "pod" // name of the pod
	UID       = "uid" // UID of a pod, where the name is unknown
	Namespace = "ns"
	Container = "container" // name of the container, or its id if the name is unknown
	CPUs      = "cpus"      // a kernel list
	Nodes     = "nodes"     // NUMA nodes, a kernel list
	Err       = "err"       // the error; the last key of a line

	Event      = "event" // kind of event
	Step       = "step"  // the step of the work on an event: gather, decide, route, apply or confirm
	Mode       = "mode"  // the attachment, such as nri
	From       = "from"  // the previous attachment
	Runtime    = "runtime"
	State      = "state"
	Owner      = "owner" // the id of the container or pod sandbox that a value is for
	Field      = "field"
	Value      = "value"
	Values     = "values"  // number of values
	Changed    = "changed" // the changes of other containers, or the number of changed values
	Key        = "key"     // annotation, label or configuration key
	Reason     = "reason"
	Kind       = "kind" // kind of a problem (error, refused or warning), or of an API object
	Hook       = "hook"
	Hint       = "hint" // what the reader of the log can do
	Panic      = "panic"
	Stack      = "stack"
	In         = "in"    // the function in which a panic was recovered
	After      = "after" // a duration
	Level      = "level" // level of a message that a library logs
	Text       = "text"  // text of a message that a library logs
	File       = "file"
	Socket     = "socket"
	Address    = "address"
	Generation = "generation"
	Config     = "config"
	Version    = "version"
	Commit     = "commit"
	YAML       = "yaml"
	Source     = "source" // source of pod specs, or the agent that Trimtab takes over from
	Pods       = "pods"   // number of pods
	Took       = "took"   // a duration
	Cut        = "cut"    // number of running calls that the agent no longer waited for
)

// ID identifies an event in the log, in the journal and in answers. It is the value of a counter. An ID is unique while
// the process runs, and a larger ID means that the agent began to handle the event later.
type ID uint32

// String returns eight hex digits.
func (i ID) String() string { return fmt.Sprintf("%08x", uint32(i)) }

// LogValue implements slog.LogValuer. slog calls it only if the line is written.
func (i ID) LogValue() slog.Value { return slog.StringValue(i.String()) }
