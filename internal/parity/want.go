package parity

import (
	"maps"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// RemoveUnsupported removes some expectations from a step of a scenario: those that the attachment cannot meet. It
// replaces the map s.Want, and does not change the old map.
func (a Attachment) RemoveUnsupported(s *scenario.Step) {
	if !a.Refuses {
		s.Rejected = ""
	}
	wants := make(map[scenario.Ref]scenario.Want, len(s.Want))
	for ref, w := range s.Want {
		if w.State == "created" {
			w = a.withoutUnsupportedLimit(w)
		}
		wants[ref] = keepFields(w, func(f lifecycle.Field) bool {
			delivery := a.containerDeliveryOf(f)
			if f == lifecycle.CoreSched {
				return delivery.BeforeStart() // if the cookies are set after the start, the kernel numbers them in no fixed order
			}
			return delivery != NotApplied && (w.State != "created" || delivery == AtCreation)
		})
	}
	s.Want = wants
}

// WantAtStart returns the expectations of w that must be met when the container executes its first instruction.
func (a Attachment) WantAtStart(w scenario.Want) scenario.Want {
	if !a.cgroupBeforeStart {
		w = a.withoutUnsupportedLimit(w)
	}
	return keepFields(w, func(f lifecycle.Field) bool { return a.containerDeliveryOf(f).BeforeStart() })
}

// withoutUnsupportedLimit removes the expected memory limit if the runtime does not support this limit at the creation
// of a container. The agent then writes the limit only to the kernel.
func (a Attachment) withoutUnsupportedLimit(w scenario.Want) scenario.Want {
	if w.Memory != nil && a.whyNotAccepted != nil && a.whyNotAccepted(lifecycle.Value{Field: lifecycle.MemoryLimit, Int: *w.Memory}) != "" {
		w.Memory = nil
	}
	return w
}

// containerDeliveryOf returns how a container's value of a field gets into force.
func (a Attachment) containerDeliveryOf(f lifecycle.Field) Delivery {
	delivery, _ := a.DeliveryOf(f, lifecycle.OfContainer)
	return delivery
}

// keepFields returns the expectations about the fields for which keep returns true.
func keepFields(w scenario.Want, keep func(lifecycle.Field) bool) scenario.Want {
	clearUnless(keep(lifecycle.CPUSetCPUs), &w.CPUs)
	clearUnless(keep(lifecycle.CPUSetCPUs), &w.Exclusive)
	clearUnless(keep(lifecycle.CPUSetMems), &w.Mems)
	clearUnless(keep(lifecycle.CPUShares), &w.Shares)
	clearUnless(keep(lifecycle.CPUQuota), &w.Quota)
	clearUnless(keep(lifecycle.MemoryLimit), &w.Memory)
	clearUnless(keep(lifecycle.Env), &w.Env)
	clearUnless(keep(lifecycle.MountPoint), &w.Mounts)
	clearUnless(keep(lifecycle.DeviceNode), &w.Devices)
	clearUnless(keep(lifecycle.CDIDevice), &w.CDI)
	clearUnless(keep(lifecycle.BlockIOClass), &w.BlockIOClass)
	clearUnless(keep(lifecycle.RDTClass), &w.RDTClass)
	clearUnless(keep(lifecycle.RDTGroup), &w.RDTGroup)
	clearUnless(keep(lifecycle.RDTGroup), &w.NoGroups)
	clearUnless(keep(lifecycle.RDTSchemata), &w.Schemata)
	clearUnless(keep(lifecycle.CoreSched), &w.Cookie)
	clearUnless(keep(lifecycle.OOMScoreAdj), &w.OOMScoreAdj)
	clearUnless(keep(lifecycle.IOLimit), &w.IOLimits)
	w.Process = maps.Clone(w.Process)
	maps.DeleteFunc(w.Process, func(name, _ string) bool {
		var f lifecycle.Field
		word, _, _ := strings.Cut(name, " ")
		return f.UnmarshalText([]byte(word)) == nil && !keep(f)
	})
	return w
}

// clearUnless sets an expectation to its zero value, which means no expectation, if keep is false.
func clearUnless[T any](keep bool, into *T) {
	if !keep {
		var zero T
		*into = zero
	}
}
