// Package parity lists which fields each attachment (connection to a runtime) can set, from the declarations of the
// attachments. docs/parity.md is generated from this list. The conformance tests check every attachment against the
// list. The agent does not use this package.
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

// Delivery says how and when a value of a container gets into force. The best delivery has the lowest number.
type Delivery int

// The deliveries.
const (
	// AtCreation means that the request that creates the container has the value.
	AtCreation Delivery = iota
	// KernelBeforeStart means that the agent writes the value to the kernel before the container's first instruction.
	KernelBeforeStart
	// KernelAfterStart means that the agent writes the value to the kernel when the container possibly runs already.
	KernelAfterStart
	// NotApplied means that the value does not take effect, and that 'trimtab status' reports it.
	NotApplied
)

// String returns the delivery in words, for the docs.
func (w Delivery) String() string {
	return [...]string{"at creation", "kernel, before the start", "kernel, after the start", "no"}[w]
}

// BeforeStart reports whether a value is in force before the container's first instruction.
func (w Delivery) BeforeStart() bool { return w <= KernelBeforeStart }

// Attachment describes what an attachment can do, from the declarations in the attachment's package.
type Attachment struct {
	Name string
	// Refuses means that the creation of a container fails if a policy refuses the container.
	Refuses bool
	// setsField reports whether the attachment can put a value of a field into its answer to an event of a kind.
	setsField func(lifecycle.Kind, lifecycle.Field) bool
	// cgroupBeforeStart means that the runtime makes a container's cgroup and then waits for the agent's answer before
	// it starts the container. podCgroupBeforeStart means the same for the cgroup of a pod.
	cgroupBeforeStart, podCgroupBeforeStart bool
	// Some fields can be set only when a container is created. whyNotSettable is the reason why the attachment cannot
	// set such fields.
	whyNotSettable string
	// whyNotAccepted returns the reason why the runtime does not support a value at the creation of a container; "" if
	// the runtime supports the value. The function is nil if the runtime supports all values.
	whyNotAccepted func(lifecycle.Value) string
	// Limits are the differences from other attachments that do not concern a single field.
	Limits []Limit
}

// Limit is a difference between attachments that does not concern a single field.
type Limit struct{ Name, Text string }

// The limits. A conformance test shows each limit.
var (
	// NoRefusal means that the attachment sees a container too late to refuse it.
	NoRefusal = Limit{"refusal", "the agent sees a container only after its creation, so it cannot refuse the creation. A container that a policy refuses runs as if it had requested nothing, and the agent reports the refusal"}
	// UnchangedUpdate means that the attachment sees only the values after an update, and not the update itself.
	UnchangedUpdate = Limit{"update to the value in force", "if the kubelet updates a value to exactly the value that Trimtab has set, the agent does not notice the update; the value stays in force"}
	// RefusedUpdates means that the attachment cannot change the kubelet's update before the runtime writes it.
	RefusedUpdates = Limit{"updates the kernel refuses", "if a kubelet's update contradicts a value that Trimtab has written to the kernel, the kernel refuses the update, and the earlier values stay in force. Examples are a quota above the pod's quota (cgroup v1), and a quota below the burst while Trimtab does not know the pod's new spec yet"}
	// RefusedByProxy means that the proxy's failure policy decides whether a refused container is created.
	RefusedByProxy = Limit{"refusal", "a refusal works only with `failurePolicy.agent: fail`, which the agent registers with the proxy. If the proxy's failure policy is Ignore, the proxy creates a refused container as if the container had requested nothing"}
	// LateOnV1 means that unified values of containers are in force late on cgroup v1, where the request to create a
	// container cannot have such values.
	LateOnV1 = Limit{"cgroup v1", "`unified` values of containers (burst) are in force only after the start: on cgroup v1, OCI runtimes fail the creation of a container that requests `unified`"}
	// NoRecords means that the runtime stores no record (an annotation with the agent's decisions) for containers.
	NoRecords = Limit{"restarts", "the runtime stores no record of the decisions about a container, so a restarted agent needs its files in `paths.state`. Without these files, containers that own CPUs keep their CPUs, but the agent treats values that it scaled itself as requested values"}
	// NoClaims means that the proxy's protocol has no CDI devices.
	NoClaims = Limit{"authority: dra", "not available: resource claims assign CPUs by CDI devices, and the proxy does not send CDI devices"}
)

// Attachments returns all attachments, each with a runtime of the newest version.
func Attachments() []Attachment {
	return []Attachment{
		{Name: "nri", Refuses: true, setsField: nri.Carries, cgroupBeforeStart: true, podCgroupBeforeStart: true, whyNotSettable: "NRI has no field for such a value"},
		{Name: "bypass", setsField: bypass.Carries, whyNotSettable: "such a value can be set only while the container is created, and bypass sees the container later",
			Limits: []Limit{NoRefusal, UnchangedUpdate, RefusedUpdates, NoRecords}},
		{Name: "cri", Refuses: true, setsField: cri.Carries, podCgroupBeforeStart: true, whyNotSettable: "the CRI has no field for such a value",
			Limits: []Limit{LateOnV1}},
		{Name: "hooks", Refuses: true, setsField: cri.HookAnswerCarries, podCgroupBeforeStart: true, whyNotSettable: "a hook server's answer has no field for such a value",
			Limits: []Limit{RefusedByProxy, UnchangedUpdate, LateOnV1, NoClaims}},
	}
}

// WithRuntime returns the attachment as it works with the runtime r, which possibly supports less than the newest
// version.
func (a Attachment) WithRuntime(r runtimes.Runtime) Attachment {
	by := runtimes.CRI
	if a.Name == "nri" {
		by = runtimes.NRI
	}
	call := map[lifecycle.Kind]runtimes.Call{lifecycle.CreateContainer: runtimes.CreateCall, lifecycle.UpdateContainer: runtimes.KubeletUpdate}
	newest := a.setsField
	a.setsField = func(k lifecycle.Kind, f lifecycle.Field) bool { return newest(k, f) && r.AppliesField(by, call[k], f) }
	a.whyNotAccepted = func(v lifecycle.Value) string { return r.WhyNotAccepted(by, runtimes.CreateCall, v) }
	return a
}

// ByName returns the attachment with the given name. It panics if there is no such attachment.
func ByName(name string) Attachment {
	for _, a := range Attachments() {
		if a.Name == name {
			return a
		}
	}
	panic(fmt.Sprintf("parity: there is no attachment %q", name))
}

// DeliveryOf returns how a value of a field gets into force. For NotApplied it also returns the reason.
func (a Attachment) DeliveryOf(f lifecycle.Field, of lifecycle.Scope) (w Delivery, why string) {
	switch {
	case of == lifecycle.OfPod && a.podCgroupBeforeStart:
		return KernelBeforeStart, ""
	case of == lifecycle.OfPod:
		return KernelAfterStart, ""
	case a.setsField(lifecycle.CreateContainer, f):
		return AtCreation, ""
	case (route.CanWriteToKernel(f) || route.CanSetOnProcess(f)) && a.cgroupBeforeStart:
		return KernelBeforeStart, ""
	case route.CanWriteToKernel(f) || route.CanSetOnProcess(f):
		return KernelAfterStart, ""
	}
	return NotApplied, a.whyNotSettable
}

// AddsRecords reports whether the attachment can add a record (an annotation with the agent's decisions) to a new
// container. If it can, a restarted agent does not need its state files.
func (a Attachment) AddsRecords() bool {
	return a.setsField(lifecycle.CreateContainer, lifecycle.Annotation)
}

// Row is a row of Table: a field that hooks set, with one cell for each attachment.
type Row struct {
	Field lifecycle.Field
	Scope lifecycle.Scope
	Hooks []string
	Cells []Cell // in the order of Attachments
}

// Cell is how a field gets into force with one attachment.
type Cell struct {
	Delivery Delivery
	Why      string // the reason if the delivery is NotApplied; otherwise ""
}

// Table returns a row for each field and scope that a hook of the catalogue sets.
func Table() []Row {
	var rows []Row
	for _, f := range lifecycle.Fields() {
		for _, scope := range []lifecycle.Scope{lifecycle.OfContainer, lifecycle.OfPod} {
			r := Row{Field: f.Field, Scope: scope, Hooks: hooksThatSet(f.Field, scope)}
			if len(r.Hooks) == 0 {
				continue
			}
			for _, a := range Attachments() {
				w, why := a.DeliveryOf(f.Field, scope)
				r.Cells = append(r.Cells, Cell{w, why})
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// hooksThatSet returns the names of the hooks that set a field.
func hooksThatSet(f lifecycle.Field, scope lifecycle.Scope) []string {
	var names []string
	for _, h := range hook.Catalogue() {
		sets := h.Sets
		if scope == lifecycle.OfPod {
			sets = h.SetsOnPod
		}
		if slices.Contains(sets, f) {
			names = append(names, h.Name)
		}
	}
	return names
}
