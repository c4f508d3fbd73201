// Package parity lists which attachment sets which field, from the attachments' declarations. docs/parity.md is
// generated from it, and the conformance tests check every attachment against it. Nothing uses it at run time.
package parity

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/attach/bypass"
	"github.com/trimtab/trimtab/internal/attach/cri"
	"github.com/trimtab/trimtab/internal/attach/nri"
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// Way is how a value gets into force, the best way first.
type Way int

// The ways.
const (
	// Created: the request that creates the container carries the value.
	Created Way = iota
	// Kernel: the keeper writes it to the kernel before the first instruction.
	Kernel
	// Late: the keeper writes it to the kernel while the container may run.
	Late
	// Never: it does not get into force, and status reports that.
	Never
)

// String returns the words of the docs.
func (w Way) String() string {
	return [...]string{"at creation", "kernel, before the start", "kernel, after the start", "no"}[w]
}

// BeforeStart reports whether a value is in force at a container's first instruction.
func (w Way) BeforeStart() bool { return w <= Kernel }

// Attachment is one way to attach to a runtime, as its code declares it.
type Attachment struct {
	Name string
	// Refuses means that a policy's rejection fails the creation of a container.
	Refuses bool
	carries func(lifecycle.Kind, lifecycle.Field) bool
	// reaches means that a starting container has a cgroup and waits for our answer. reachesPods means the same for
	// pods.
	reaches, reachesPods bool
	// never is why the attachment cannot set a field that can be set only at a creation.
	never string
	// takes returns why the runtime does not support a value at a creation, or "". takes is nil if the runtime
	// supports all values.
	takes func(lifecycle.Value) string
	// Limits are the other differences.
	Limits []Limit
}

// Limit is a difference between attachments that is not about a field.
type Limit struct{ Name, Text string }

// The limits. The conformance tests show each of them.
var (
	// NoRefusal: the attachment learns of a container too late to refuse it.
	NoRefusal = Limit{"refusal", "a container that a policy refuses exists already: it runs as if it had requested nothing, and the agent reports that"}
	// UnchangedUpdate: the attachment sees only the results of requests.
	UnchangedUpdate = Limit{"update to the value in force", "the agent does not notice a kubelet's update to exactly the value that Trimtab had set; that value stays in force"}
	// RefusedUpdates: the attachment cannot change a request.
	RefusedUpdates = Limit{"updates the kernel refuses", "a kubelet's update fails if the kernel refuses it together with a value of Trimtab's (a quota above the pod's own in cgroup v1, or below the burst before the pod's spec has changed); the earlier values stay in force"}
	// RefusedByProxy: the proxy has a failure policy of its own.
	RefusedByProxy = Limit{"refusal", "needs `failurePolicy.agent: fail`, which the agent registers with the proxy: a proxy whose policy is Ignore creates a container that a policy refuses, as if the container had requested nothing"}
	// LateOnV1: only the request can set the value before the start.
	LateOnV1 = Limit{"cgroup v1", "`unified` of containers (burst) is in force only after the start: OCI runtimes fail the creation of a container that requests it there"}
	// NoRecords: containers carry no record.
	NoRecords = Limit{"restarts", "containers carry no record: a restarted agent needs its files in paths.state; without them, owners keep their CPUs, and scaled values count as requested"}
)

// Attachments lists all attachments, each with the newest runtime.
func Attachments() []Attachment {
	return []Attachment{
		{Name: "nri", Refuses: true, carries: nri.Carries, reaches: true, reachesPods: true, never: "NRI has no field for it"},
		{Name: "bypass", carries: bypass.Carries, never: "it can be set only while the container is created, and bypass sees the container after that",
			Limits: []Limit{NoRefusal, UnchangedUpdate, RefusedUpdates, NoRecords}},
		{Name: "cri", Refuses: true, carries: cri.Carries, reachesPods: true, never: "the CRI has no field for it",
			Limits: []Limit{LateOnV1}},
		{Name: "hooks", Refuses: true, carries: cri.CarriesHooks, reachesPods: true, never: "the answer of a hook server has no field for it",
			Limits: []Limit{RefusedByProxy, UnchangedUpdate, LateOnV1}},
	}
}

// With returns the attachment with a runtime that supports less than the newest one.
func (a Attachment) With(r runtimes.Runtime) Attachment {
	by := runtimes.CRI
	if a.Name == "nri" {
		by = runtimes.NRI
	}
	call := map[lifecycle.Kind]runtimes.Call{lifecycle.CreateContainer: runtimes.Create, lifecycle.UpdateContainer: runtimes.Request}
	newest := a.carries
	a.carries = func(k lifecycle.Kind, f lifecycle.Field) bool { return newest(k, f) && r.Has(by, call[k], f) }
	a.takes = func(v lifecycle.Value) string { return r.Takes(by, runtimes.Create, v) }
	return a
}

// Named returns an attachment by its name. It panics for an unknown name.
func Named(name string) Attachment {
	for _, a := range Attachments() {
		if a.Name == name {
			return a
		}
	}
	panic(fmt.Sprintf("parity: there is no attachment %q", name))
}

// Delivers returns how a value of a field gets into force. For Never it also returns why the value does not.
func (a Attachment) Delivers(f lifecycle.Field, of lifecycle.Scope) (w Way, why string) {
	switch {
	case of == lifecycle.OfPod && a.reachesPods:
		return Kernel, ""
	case of == lifecycle.OfPod:
		return Late, ""
	case a.carries(lifecycle.CreateContainer, f):
		return Created, ""
	case (route.InKernel(f) || route.OnProcess(f)) && a.reaches:
		return Kernel, ""
	case route.InKernel(f) || route.OnProcess(f):
		return Late, ""
	}
	return Never, a.never
}

// CarriesRecords reports whether containers carry the decisions about them. If so, a restart needs none of our
// files.
func (a Attachment) CarriesRecords() bool {
	return a.carries(lifecycle.CreateContainer, lifecycle.Annotation)
}

// Row is a field that hooks set, with one cell for each attachment.
type Row struct {
	Field lifecycle.Field
	Scope lifecycle.Scope
	Hooks []string
	Cells []Cell // in the order of Attachments
}

// Cell is how a field gets into force with one attachment.
type Cell struct {
	Way Way
	Why string // of Never
}

// Table has a row for each field and scope that a hook of the catalogue sets.
func Table() []Row {
	var rows []Row
	for _, f := range lifecycle.Fields() {
		for _, scope := range []lifecycle.Scope{lifecycle.OfContainer, lifecycle.OfPod} {
			r := Row{Field: f.Field, Scope: scope, Hooks: setters(f.Field, scope)}
			if len(r.Hooks) == 0 {
				continue
			}
			for _, a := range Attachments() {
				w, why := a.Delivers(f.Field, scope)
				r.Cells = append(r.Cells, Cell{w, why})
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// setters returns the names of the hooks that set a field.
func setters(f lifecycle.Field, scope lifecycle.Scope) []string {
	var names []string
	for _, h := range hook.Catalogue() {
		sets := h.Sets
		if scope == lifecycle.OfPod {
			sets = h.Pod
		}
		if slices.Contains(sets, f) {
			names = append(names, h.Name)
		}
	}
	return names
}
