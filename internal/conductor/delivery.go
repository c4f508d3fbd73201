package conductor

import (
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// slot is what a value sets.
type slot struct {
	field lifecycle.Field
	key   string
}

func slotOf(v lifecycle.Value) slot { return slot{v.Field, v.Key} }

// delivery is what became of one value.
type delivery struct {
	channel string
	value   string
	applied bool
	note    string
	alone   string      // why it is kept from the runtime; "" where it is not
	missing api.Missing // why it is not in force
}

// told is the note for people.
func (d delivery) told() string {
	switch {
	case d.alone == "":
		return d.note
	case d.note == "":
		return "in the kernel alone: " + d.alone
	}
	return "in the kernel alone: " + d.alone + "; " + d.note
}

// deliveries are what became of a container's or pod's values. There are a few,
// of many: a list takes a fifth of a map's memory.
type deliveries []settled

type settled struct {
	slot slot
	delivery
}

// of returns what became of a value.
func (ds deliveries) of(s slot) (d delivery, ok bool) {
	for i := range ds {
		if ds[i].slot == s {
			return ds[i].delivery, true
		}
	}
	return delivery{}, false
}

// with is the list with one more, or with another in its place.
func (ds deliveries) with(s slot, d delivery) deliveries {
	for i := range ds {
		if ds[i].slot == s {
			ds[i].delivery = d
			return ds
		}
	}
	return append(ds, settled{s, d})
}

// untold reports whether no runtime tells a field of a container that exists.
func untold(f lifecycle.Field) bool {
	return f == lifecycle.BlockIOClass || f == lifecycle.RDTClass
}

func setOf(fields []lifecycle.Field) map[lifecycle.Field]bool {
	set := make(map[lifecycle.Field]bool, len(fields))
	for _, f := range fields {
		set[f] = true
	}
	return set
}

// present reports whether a container already has a value that only its
// creation could give it.
func present(told *lifecycle.Container, v lifecycle.Value) bool {
	switch v.Field {
	case lifecycle.Env:
		for _, e := range told.Env {
			if name, value, _ := strings.Cut(e, "="); name == v.Key {
				return value == v.Text && !v.Gone
			}
		}
		return v.Gone
	case lifecycle.Annotation:
		return told.Annotations[v.Key] == v.Text
	case lifecycle.MountPoint:
		for _, m := range told.Mounts {
			if v.Mount != nil && m.Destination == v.Mount.Destination && m.Source == v.Mount.Source {
				return true
			}
		}
	case lifecycle.OOMScoreAdj:
		return told.OOMScoreAdj.V == v.Int
	case lifecycle.CDIDevice:
		return slices.Contains(told.CDIDevices, v.Key)
	case lifecycle.DeviceNode:
		for _, d := range told.Devices {
			if d.Path == v.Key {
				return true
			}
		}
	}
	return false
}

// fromKernel turns what the keeper says into a delivery.
func fromKernel(o keeper.Outcome, before delivery) delivery {
	d := delivery{channel: "kernel", value: o.Value.String(), applied: true}
	if before.value == d.value {
		d.alone = before.alone
	}
	switch o.State {
	case keeper.Superseded, keeper.Forgotten:
		return before // a later decision speaks for itself
	case keeper.Same:
		if before.applied && before.value == d.value {
			return before // somebody else, by our wish, had brought it there
		}
		d.note = "the kernel had it already"
	case keeper.Pending:
		d.applied, d.note, d.missing = false, "its cgroup does not exist yet; written when it starts", api.NotYet
	case keeper.Refused:
		d.applied, d.note, d.missing = false, o.Err.Error(), api.KernelRefused
	case keeper.Left:
		d.applied, d.note, d.missing = false, o.Err.Error(), api.LeftAlone
	case keeper.Clipped:
		d.note = "only " + o.Kernel + ": the cgroup above has no more"
	}
	return d
}
