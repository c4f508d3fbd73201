package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/ociedit"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// wrapper writes decisions for the OCI runtime wrapper trimtab-oci, under the id that the runtime gives a
// container. containerd calls the OCI runtime when a container starts, which is after the decision was written.
type wrapper struct {
	dir string // "" without a wrapper
	log *slog.Logger
}

// wrapperFields are the fields that the wrapper sets. Each function adds a value to a decision. It returns false if a
// decision cannot express the value. The table lacks sysctls and the cgroup mount, because requests of the CRI do not
// reliably say whether a container has its own namespaces. An OCI runtime fails a container that would set a sysctl of
// the host.
var wrapperFields = map[lifecycle.Field]func(d *ociedit.Decision, v lifecycle.Value) bool{
	lifecycle.ProcessLimit: func(d *ociedit.Decision, v lifecycle.Value) bool {
		r, ok := lifecycle.ParseRlimit(v.Key, v.Text)
		d.Rlimits = append(d.Rlimits, ociedit.Rlimit(r))
		return ok
	},
	lifecycle.ProcessIO: func(d *ociedit.Decision, v lifecycle.Value) bool {
		p, ok := lifecycle.ParseIOPriority(v.Text)
		d.IOPriority = &ociedit.IOPriority{Class: p.Class, Priority: int(p.Priority)}
		return ok
	},
	lifecycle.ProcessSched: func(d *ociedit.Decision, v lifecycle.Value) bool {
		s, ok := lifecycle.ParseScheduler(v.Text)
		d.Scheduler = new(ociedit.Scheduler(s))
		return ok
	},
	lifecycle.InjectedHook: func(d *ociedit.Decision, v lifecycle.Value) bool {
		stage, h, ok := lifecycle.ParseOCIHook(v.Key, v.Text)
		if d.Hooks == nil {
			d.Hooks = map[string][]ociedit.Hook{}
		}
		d.Hooks[stage] = append(d.Hooks[stage], ociedit.Hook(h))
		return ok
	},
	lifecycle.IntelRDT: func(d *ociedit.Decision, v lifecycle.Value) bool {
		if d.RDT == nil {
			d.RDT = &ociedit.RDT{}
		}
		switch v.Key {
		case "closid":
			d.RDT.ClosID = v.Text
		case "schemata":
			d.RDT.Schemata = strings.Split(v.Text, ",")
		case "monitoring":
			d.RDT.EnableMonitoring = v.Text == "true"
		default:
			return false
		}
		return true
	},
	lifecycle.MemPolicy: func(d *ociedit.Decision, v lifecycle.Value) bool {
		m, ok := lifecycle.ParseMemoryPolicy(v.Text)
		d.MemoryPolicy = new(ociedit.MemoryPolicy(m))
		return ok
	},
}

// wrapperSets reports whether the wrapper sets a field of new containers. It never does so under CRI-O, which calls
// the OCI runtime before the proxy knows the container's id.
func wrapperSets(kind runtimes.Runtime, f lifecycle.Field) bool {
	return wrapperFields[f] != nil && kind.Name != runtimes.CRIO
}

// splitValues separates the values that the wrapper sets (ours) from those that the CRI request must have (rest).
func (w wrapper) splitValues(kind runtimes.Runtime, values []lifecycle.Value) (ours, rest []lifecycle.Value) {
	if w.dir == "" {
		return nil, values
	}
	for _, v := range values {
		if wrapperSets(kind, v.Field) && v.Scope == lifecycle.OfContainer {
			ours = append(ours, v)
		} else {
			rest = append(rest, v)
		}
	}
	return ours, rest
}

// writeDecision writes the decision about a container, if there are values for the wrapper.
func (w wrapper) writeDecision(id string, values []lifecycle.Value) error {
	if len(values) == 0 {
		return nil
	}
	d := ociedit.Decision{ID: id}
	for _, v := range values {
		if !wrapperFields[v.Field](&d, v) {
			return fmt.Errorf("write a decision for trimtab-oci: an OCI spec cannot express %s %q", v.Setting(), v.Text)
		}
	}
	return ociedit.WriteDecision(w.dir, d)
}

// wrapperName is the name of the wrapper in the status of the values that it sets.
const wrapperName = "trimtab-oci"

// delegation returns the fields of new containers that the wrapper sets, or nil if there is no wrapper.
func (w wrapper) delegation(kind runtimes.Runtime) *lifecycle.Delegation {
	if w.dir == "" {
		return nil
	}
	fields := lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return wrapperSets(kind, f) })
	return &lifecycle.Delegation{Fields: fields, By: wrapperName, Pending: true}
}

// result reads whether the wrapper applied the decision about a container that has started. The returned Delegation
// says so in the field Err, and result logs a failure. It returns nil if there is no wrapper. attrs are log attributes
// that name the container.
func (w wrapper) result(kind runtimes.Runtime, id string, attrs []any) *lifecycle.Delegation {
	d := w.delegation(kind)
	if d == nil {
		return nil
	}
	d.Pending = false
	switch err := ociedit.ReadResult(w.dir, id); {
	case err == nil:
	case errors.Is(err, ociedit.ErrNotRead):
		d.Err = "the container's OCI runtime is not trimtab-oci, or uses another directory of decisions"
		w.log.Warn("a container runs without some of the decided values: the container's OCI runtime is not trimtab-oci, or uses another directory of decisions", attrs...)
	default:
		d.Err = "trimtab-oci could not apply the decision: " + err.Error()
		w.log.Warn("a container runs without some of the decided values: trimtab-oci could not apply the decision", append(attrs, logkey.Err, err)...)
	}
	return d
}

// addAppliedValues adds to a container the values that the wrapper has set in it, because the runtime does not report
// these values.
func (w wrapper) addAppliedValues(c *lifecycle.Container) {
	if w.dir == "" || c.Undescribed != "" || ociedit.ReadResult(w.dir, c.ID) != nil {
		return
	}
	d, err := ociedit.ReadDecision(w.dir, c.ID)
	if err != nil {
		return
	}
	for _, r := range d.Rlimits {
		c.Rlimits = append(c.Rlimits, lifecycle.Rlimit(r))
	}
	if p := d.IOPriority; p != nil {
		c.IOPriority = &lifecycle.IOPriority{Class: p.Class, Priority: int32(p.Priority)} //nolint:gosec // 0 to 7
	}
	if d.Scheduler != nil {
		c.Scheduler = new(lifecycle.Scheduler(*d.Scheduler))
	}
	if r := d.RDT; r != nil {
		c.RDT = &lifecycle.RDT{Schemata: r.Schemata}
		if r.ClosID != "" {
			c.RDT.ClosID = lifecycle.Some(r.ClosID)
		}
		if r.EnableMonitoring {
			c.RDT.Monitoring = lifecycle.Some(true)
		}
	}
	if len(d.Hooks) > 0 {
		c.Hooks = &lifecycle.OCIHooks{
			Prestart: hooksOf(&d, "prestart"), CreateRuntime: hooksOf(&d, "createRuntime"), CreateContainer: hooksOf(&d, "createContainer"),
			StartContainer: hooksOf(&d, "startContainer"), Poststart: hooksOf(&d, "poststart"), Poststop: hooksOf(&d, "poststop"),
		}
	}
}

// hooksOf returns the OCI hooks that a decision adds at a stage.
func hooksOf(d *ociedit.Decision, stage string) (all []lifecycle.OCIHook) {
	for _, h := range d.Hooks[stage] {
		all = append(all, lifecycle.OCIHook(h))
	}
	return all
}

// removeDecisions removes the decisions about containers that no longer exist.
func (w wrapper) removeDecisions(ids ...string) {
	if w.dir == "" {
		return
	}
	for _, id := range ids {
		if err := ociedit.RemoveDecision(w.dir, id); err != nil {
			w.log.Warn("the agent cannot remove the decision for trimtab-oci about a removed container", logkey.Container, id, logkey.Err, err)
		}
	}
}

// removeUnlisted removes the decisions about containers that the runtime does not list.
func (w wrapper) removeUnlisted(ctrs []criclient.Container) {
	if w.dir == "" {
		return
	}
	listed := make(map[string]bool, len(ctrs))
	for _, c := range ctrs {
		listed[c.ID] = true
	}
	ids, err := ociedit.DecisionIDs(w.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.log.Warn("the agent cannot list the decisions for trimtab-oci", logkey.Err, err)
	}
	for _, id := range ids {
		if !listed[id] {
			w.removeDecisions(id)
		}
	}
}
