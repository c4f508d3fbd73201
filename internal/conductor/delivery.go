package conductor

import (
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
)

// applyResult is the result of applying one value.
type applyResult = nodeview.ApplyResult

// applyResults are the results for the values of one container or pod. A container has few values, so a list takes a
// fifth of the memory of a map.
type applyResults []applyResult

// indexOf returns the index of the result for a value; -1 if there is none.
func (ds applyResults) indexOf(v lifecycle.Value) int {
	return slices.IndexFunc(ds, func(d applyResult) bool { return d.Field == v.Field && d.Key == v.Key })
}

// find returns the result for a value.
func (ds applyResults) find(v lifecycle.Value) (d applyResult, ok bool) {
	if i := ds.indexOf(v); i >= 0 {
		return ds[i], true
	}
	return applyResult{}, false
}

// resultWithDelegation returns the result for the value v of a new container. If another program sets the value, the
// result says so; delegation says which values this program sets. Otherwise resultWithDelegation returns d.
func resultWithDelegation(delegation *lifecycle.Delegation, v lifecycle.Value, d applyResult) applyResult {
	if delegation == nil || !delegation.Fields.Has(v.Field) {
		return d
	}
	program := delegation.By
	delegated := d.Applied || d.Channel == program || delegation.Err != "" && d.Missing == api.CreateOnly
	switch {
	case !delegated:
		return d
	case delegation.Pending:
		return applyResult{Channel: program, Value: v.String(), Missing: api.NotYet, Note: program + " sets the value when the container starts"}
	case delegation.Err != "":
		return applyResult{Channel: program, Value: v.String(), Missing: api.NotCarried, Note: delegation.Err}
	}
	return applyResult{Channel: program, Value: v.String(), Applied: true}
}

// noteDelegated notes the results for those values of the event's container that another program sets.
func (n *node) noteDelegated(ev *lifecycle.Event) {
	if ev.Delegated == nil {
		return
	}
	ctr := n.state.Container(ev.Container.ID)
	if ctr == nil {
		return
	}
	t := n.track(ctr.ID)
	t.delegation = ev.Delegated
	for _, v := range n.state.Values(ctr) {
		if d, ok := t.find(v); ok {
			t.noteResult(v, d)
		}
	}
}

// mayBeUnreported reports whether some runtime does not report the field for an existing container. No runtime reports
// BlockIOClass, RDTClass and MemPolicy, and CRI-O reports no CDI devices over the CRI.
func mayBeUnreported(f lifecycle.Field) bool {
	return f == lifecycle.BlockIOClass || f == lifecycle.RDTClass || f == lifecycle.MemPolicy || f == lifecycle.CDIDevice
}

func fieldSet(fields []lifecycle.Field) map[lifecycle.Field]bool {
	set := make(map[lifecycle.Field]bool, len(fields))
	for _, f := range fields {
		set[f] = true
	}
	return set
}

// isPresent reports whether a container already has a value that only its creation can set.
func isPresent(reported *lifecycle.Container, v lifecycle.Value) bool {
	switch v.Field {
	case lifecycle.Env:
		for _, e := range reported.Env {
			if name, value, _ := strings.Cut(e, "="); name == v.Key {
				return value == v.Text && !v.Remove
			}
		}
		return v.Remove
	case lifecycle.Annotation:
		return reported.Annotations[v.Key] == v.Text
	case lifecycle.MountPoint:
		for _, m := range reported.Mounts {
			if v.Mount != nil && m.Destination == v.Mount.Destination && m.Source == v.Mount.Source {
				return true
			}
		}
	case lifecycle.OOMScoreAdj:
		return reported.OOMScoreAdj.V == v.Int
	case lifecycle.ProcessLimit, lifecycle.ProcessIO, lifecycle.ProcessSched, lifecycle.SysctlEntry, lifecycle.NetDevice, lifecycle.InjectedHook, lifecycle.CgroupMount, lifecycle.IntelRDT:
		return isProcessValuePresent(reported, v)
	case lifecycle.CDIDevice:
		return slices.Contains(reported.CDIDevices, v.Key)
	case lifecycle.DeviceNode:
		for _, d := range reported.Devices {
			if d.Path == v.Key {
				return true
			}
		}
	}
	return false
}

// isProcessValuePresent is the part of isPresent for settings of the container's first process (such as rlimits),
// sysctls, network devices, the cgroup mount, the RDT group and OCI hooks.
func isProcessValuePresent(reported *lifecycle.Container, v lifecycle.Value) bool {
	switch v.Field {
	case lifecycle.ProcessLimit:
		return slices.ContainsFunc(reported.Rlimits, func(r lifecycle.Rlimit) bool { return r.Type == v.Key && r.Text() == v.Text })
	case lifecycle.ProcessIO:
		return reported.IOPriority != nil && reported.IOPriority.Text() == v.Text
	case lifecycle.ProcessSched:
		return reported.Scheduler != nil && reported.Scheduler.Text() == v.Text
	case lifecycle.SysctlEntry:
		return reported.Sysctl[v.Key] == v.Text
	case lifecycle.NetDevice:
		return reported.NetDevices[v.Key] == v.Text
	case lifecycle.CgroupMount:
		return slices.ContainsFunc(reported.Mounts, func(m lifecycle.Mount) bool {
			return m.Destination == "/sys/fs/cgroup" && !slices.Contains(m.Options, "ro")
		})
	case lifecycle.IntelRDT:
		return reported.RDT.Member(v.Key) == v.Text
	case lifecycle.InjectedHook:
		stage, hook, ok := lifecycle.ParseOCIHook(v.Key, v.Text)
		hook.Timeout = 0 // not every runtime reports the timeout
		return ok && slices.ContainsFunc(reported.Hooks.OfStage(stage), func(h lifecycle.OCIHook) bool {
			h.Timeout = 0
			return h.Text() == hook.Text()
		})
	}
	return false
}

// fromOutcome converts the keeper's outcome for a value into a result. The parameter earlier is the stored result,
// which the new result replaces.
func fromOutcome(o keeper.Outcome, earlier applyResult) applyResult {
	d := applyResult{Channel: "kernel", Value: o.Value.String(), Applied: true}
	if earlier.Value == d.Value {
		d.WhyKernelOnly = earlier.WhyKernelOnly
	}
	switch o.State {
	case keeper.Superseded, keeper.Forgotten:
		return earlier // the outcome is for an old value; a later decision has its own outcome
	case keeper.Unchanged:
		if earlier.Applied && earlier.Value == d.Value {
			return earlier // the value was applied before, perhaps by the runtime
		}
		d.Note = "the kernel already had this value"
	case keeper.Pending:
		if o.Err != nil { // the value is a CPU weight that has no effect while cpu.idle is 1; it counts as applied, because the agent set cpu.idle
			d.Note = o.Err.Error()
			break
		}
		d.Applied, d.Note, d.Missing = false, "the cgroup does not exist yet; the agent writes the value as soon as it exists", api.NotYet
	case keeper.Refused:
		d.Applied, d.Note, d.Missing = false, o.Err.Error(), api.KernelRefused
	case keeper.Ceded:
		d.Applied, d.Note, d.Missing = false, o.Err.Error(), api.LeftAlone
	case keeper.Clipped:
		d.Note = "only " + o.Kernel + " is in force: the parent cgroup allows no more"
	}
	return d
}
