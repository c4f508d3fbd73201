package engine

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// unread is the problem of a pod or container that the runtime does not describe.
func unread(why string) lifecycle.Problem {
	return lifecycle.Problem{
		Value: intent.Printable(why), Warning: true, Reason: "the runtime lists it and cannot say what it was asked for",
		Then: "it keeps the CPUs it has, nothing else is decided, and the runtime is asked again",
	}
}

// noteUnread takes in that the runtime did not describe a container.
func (d *draft) noteUnread(p *Pod, c *Container, told *lifecycle.Container, f Facts) {
	if told.Unread == "" {
		return
	}
	_, recorded := f.Records[told.ID]
	c.Unread, c.Unasked = told.Unread, !recorded || p.Pod.CgroupParent == ""
	c.distrust = append(slices.Clip(c.distrust), unread(told.Unread))
}

// apart are those of some values that keep a container clear of CPUs others own:
// what others are promised does not wait until the container can be read.
func apart(values []lifecycle.Value) []lifecycle.Value {
	return slices.DeleteFunc(values, func(v lifecycle.Value) bool { return v.Field != lifecycle.CPUSetCPUs })
}

// adoptUnread makes do with what the kernel gives a container of which neither
// record nor runtime says anything. CPUs that its pod is known to own, was assigned,
// or has alone where the agent chooses, stay its own: given to others, they would
// be taken from what runs.
func (d *draft) adoptUnread(p *Pod, c *Container, f Facts) *Record {
	has := d.machine.OnlineOf(f.Runs[c.ID])
	c.bound = has
	if has.Empty() || !d.policy.Place {
		return &Record{Kept: lifecycle.Kept{Unplaced: !d.policy.Place}}
	}
	if d.unreadOwns(p, c, has, f) && d.grantable(p, c.Key, has) == nil {
		c.Born, c.bound = has, topology.Set{}
		return &Record{CPUs: d.machine.Format(has)}
	}
	d.adoptHome(p, c, has)
	return &Record{Kept: lifecycle.Kept{Home: c.Home}}
}

// unreadSince returns the CPUs of an owner that is unread and may have been resized
// since its record was stamped: those it runs on, where nobody else does.
func (d *draft) unreadSince(p *Pod, c *Container, rec *Record, f Facts) string {
	born, runs := d.machine.PlacesOf(rec.CPUs), d.machine.OnlineOf(f.Runs[c.ID])
	if rec.Late || born.Empty() || runs.Empty() || runs == born.And(d.machine.Online()) || d.listed == nil || !d.aloneOn(p, runs, f) {
		return rec.CPUs
	}
	return d.machine.Format(runs.Union(born.Minus(d.machine.Online())))
}

// unreadOwns reports whether a container of which little is known is to be taken for
// the owner of the CPUs it runs on.
func (d *draft) unreadOwns(p *Pod, c *Container, has topology.Set, f Facts) bool {
	if known := d.machine.OnlineOf(f.Grants[p.Pod.UID]); !known.Empty() {
		return known.Contains(has)
	}
	if p.Intent.CPUs.Said() {
		assigned, err := d.machine.ParseCPUs(topology.FormatList(p.Intent.CPUs.V))
		return err == nil && assigned == has
	}
	if d.listed == nil || d.terms(p).Pays == placement.Nothing || has == d.machine.Online() || has == p.Within {
		return false
	}
	if spec, named := p.Spec.Container(c.Name); named {
		const milli = 1000
		return spec.Requests[lifecycle.ResourceCPU]/milli == int64(has.Len()) && d.aloneOn(p, has, f)
	}
	return d.aloneOn(p, has, f)
}

// reread decides a container anew that the runtime describes now. It is as if it
// was found when the agent started.
func (d *draft) reread(p *Plan, c *Container, told *lifecycle.Container, f Facts) {
	if _, owns := d.ledger.Of(c.Key); owns {
		d.write().Drop(c.Key)
		d.moved = true
	}
	d.put(c.ID, nil)
	d.create(p, told, f, lifecycle.StateRunning)
}
