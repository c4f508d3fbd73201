// Package parity says which attachment sets which field, from what the
// attachments declare. docs/parity.md is made of it, and the conformance tests
// hold every attachment to it. It decides nothing and nothing at run time reads
// it.
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

// Way is how a value comes to be in force, the best first.
type Way int

// The ways.
const (
	// Created: the creation of the container carries it.
	Created Way = iota
	// Held: the keeper writes it to the kernel before the first instruction.
	Held
	// Late: the keeper writes it to the kernel while the container may run.
	Late
	// Never: it is not in force, and that is reported.
	Never
)

// String is the way as the docs print it.
func (w Way) String() string {
	return [...]string{"at creation", "kernel, before the start", "kernel, after the start", "no"}[w]
}

// InTime reports whether a value is in force at a container's first instruction.
func (w Way) InTime() bool { return w <= Held }

// Attachment is one way to sit at a runtime, as its code declares it.
type Attachment struct {
	Name string
	// Refuses: a policy's no fails the creation of a container.
	Refuses bool
	carries func(lifecycle.Kind, lifecycle.Field) bool
	// reaches: a container's cgroup is there, and it does not run before we
	// have answered; pods likewise.
	reaches, reachesPods bool
	// never is why a field that only a creation can carry is not carried.
	never string
	// takes says why the runtime does not take a value when a container is created;
	// nil where it takes all.
	takes func(lifecycle.Value) string
	// Limits are what else does not come out the same.
	Limits []Limit
}

// Limit is something that does not come out the same through an attachment,
// whatever the field.
type Limit struct{ Name, Text string }

// The limits; the conformance tests show each.
var (
	// Unrefused is that of an attachment that comes too late for a no.
	Unrefused = Limit{"refusal", "a container that a policy refuses exists already: it runs as if nothing had been asked for, and that is reported"}
	// SameAgain is that of who sees results in place of requests.
	SameAgain = Limit{"the same again", "a kubelet's update to exactly what Trimtab had given is not seen to be one: what was in force stays"}
	// Beside is that of who cannot change a request.
	Beside = Limit{"updates the kernel refuses", "a kubelet's update that cannot stand beside what Trimtab has written (a quota above the pod's own in cgroup v1, or below the burst before the pod's spec says so) fails; what was in force stays"}
	// RefusedByProxy is that of who answers a proxy, which has its own policy.
	RefusedByProxy = Limit{"refusal", "takes `failurePolicy.agent: fail`, which is registered with the proxy: one whose policy is Ignore creates a container that a policy refuses, as if nothing had been asked for"}
	// LateOnV1 is that of who only has the request to be in time.
	LateOnV1 = Limit{"cgroup v1", "`unified` of containers (burst) is in force only after the start: OCI runtimes fail a container that is requested with it there"}
	// Recordless is that of containers without a record.
	Recordless = Limit{"restarts", "containers carry no record: an agent that starts anew needs its files in paths.state; without them, who owns CPUs keeps them, and scaled values count as asked for"}
)

// Attachments lists all there are, each beside the newest runtime it knows.
func Attachments() []Attachment {
	return []Attachment{
		{Name: "nri", Refuses: true, carries: nri.Carries, reaches: true, reachesPods: true, never: "NRI has no field for it"},
		{Name: "bypass", carries: bypass.Carries, never: "it can be set only while the container is created, and bypass sees the container after that",
			Limits: []Limit{Unrefused, SameAgain, Beside, Recordless}},
		{Name: "cri", Refuses: true, carries: cri.Carries, reachesPods: true, never: "the CRI has no field for it",
			Limits: []Limit{LateOnV1}},
		{Name: "hooks", Refuses: true, carries: cri.CarriesHooks, reachesPods: true, never: "the answer of a hook server has no field for it",
			Limits: []Limit{RefusedByProxy, SameAgain, LateOnV1}},
	}
}

// Beside is the attachment beside a runtime that carries less than the newest.
func (a Attachment) Beside(r runtimes.Runtime) Attachment {
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

// Named returns an attachment by its name; an unknown one is a programming
// error.
func Named(name string) Attachment {
	for _, a := range Attachments() {
		if a.Name == name {
			return a
		}
	}
	panic(fmt.Sprintf("parity: there is no attachment %q", name))
}

// Brings says how a value of a field comes to be in force, and why it does not.
func (a Attachment) Brings(f lifecycle.Field, of lifecycle.Scope) (w Way, why string) {
	switch {
	case of == lifecycle.OfPod && a.reachesPods:
		return Held, ""
	case of == lifecycle.OfPod:
		return Late, ""
	case a.carries(lifecycle.CreateContainer, f):
		return Created, ""
	case route.InKernel(f) && a.reaches:
		return Held, ""
	case route.InKernel(f):
		return Late, ""
	}
	return Never, a.never
}

// Stamps reports whether containers carry what was decided for them, so that
// a restart needs no file of ours.
func (a Attachment) Stamps() bool {
	return a.carries(lifecycle.CreateContainer, lifecycle.Annotation)
}

// Row is a field that hooks set, and what becomes of it.
type Row struct {
	Field lifecycle.Field
	Scope lifecycle.Scope
	Hooks []string
	Cells []Cell // one for each of Attachments
}

// Cell is what becomes of a field in one attachment.
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
				w, why := a.Brings(f.Field, scope)
				r.Cells = append(r.Cells, Cell{w, why})
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// setters names the hooks that set a field.
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
