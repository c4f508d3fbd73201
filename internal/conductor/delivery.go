package conductor

import (
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
)

// delivery is the result of applying one value.
type delivery = nodeview.ApplyResult

// deliveries are the results for the values of one container or pod. A container has few values, so a list takes a
// fifth of the memory of a map.
type deliveries []delivery

// indexOf returns the index of a value in the list; -1 if it is missing.
func (ds deliveries) indexOf(v lifecycle.Value) int {
	return slices.IndexFunc(ds, func(d delivery) bool { return d.Field == v.Field && d.Key == v.Key })
}

// find returns the result for a value.
func (ds deliveries) find(v lifecycle.Value) (d delivery, ok bool) {
	if i := ds.indexOf(v); i >= 0 {
		return ds[i], true
	}
	return delivery{}, false
}

// setByOther returns the result for a value. It returns d, except for a value that another program sets in a new
// container.
func setByOther(by *lifecycle.Delegation, v lifecycle.Value, d delivery) delivery {
	if by == nil || !by.Fields.Has(v.Field) {
		return d
	}
	given := d.Applied || d.Channel == by.By || by.Err != "" && d.Missing == api.CreateOnly
	switch {
	case !given:
		return d
	case by.Pending:
		return delivery{Channel: by.By, Value: v.String(), Missing: api.NotYet, Note: by.By + " sets it when the container starts"}
	case by.Err != "":
		return delivery{Channel: by.By, Value: v.String(), Missing: api.NotCarried, Note: by.Err}
	}
	return delivery{Channel: by.By, Value: v.String(), Applied: true}
}

// noteDelegated notes the results for values of the event's container that another program sets.
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

// isProcessValuePresent is isPresent for the fields of a container's first process and of its namespaces, for its RDT
// group, and for OCI hooks.
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

// fromOutcome converts the keeper's outcome for a value into a delivery. before is the delivery until now.
func fromOutcome(o keeper.Outcome, before delivery) delivery {
	d := delivery{Channel: "kernel", Value: o.Value.String(), Applied: true}
	if before.Value == d.Value {
		d.WhyKernelOnly = before.WhyKernelOnly
	}
	switch o.State {
	case keeper.Superseded, keeper.Forgotten:
		return before // a later decision has its own result
	case keeper.Unchanged:
		if before.Applied && before.Value == d.Value {
			return before // the runtime had written the value at the agent's request
		}
		d.Note = "the kernel already had this value"
	case keeper.Pending:
		if o.Err != nil { // the agent has set cpu.idle, which overrides the weight
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
