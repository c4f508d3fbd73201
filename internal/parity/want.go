package parity

import (
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// Alter takes from a step of a scenario what the attachment declares it cannot
// set. The step's wants are replaced, not changed.
func (a Attachment) Alter(s *scenario.Step) {
	if !a.Refuses {
		s.Rejected = ""
	}
	wants := make(map[scenario.Ref]scenario.Want, len(s.Want))
	for ref, w := range s.Want {
		if w.State == "created" {
			w = a.takenOf(w)
		}
		wants[ref] = trim(w, func(f lifecycle.Field) bool {
			way := a.way(f)
			if f == lifecycle.CoreSched {
				return way.InTime() // cookies that come late are numbered in any order
			}
			return way != Never && (w.State != "created" || way == Created)
		})
	}
	s.Want = wants
}

// First is what of a want must have been so at a container's first instruction.
func (a Attachment) First(w scenario.Want) scenario.Want {
	if !a.reaches {
		w = a.takenOf(w)
	}
	return trim(w, func(f lifecycle.Field) bool { return a.way(f).InTime() })
}

// takenOf takes from a want the memory limit that the runtime does not take when
// a container is created: it is in the kernel alone.
func (a Attachment) takenOf(w scenario.Want) scenario.Want {
	if w.Memory != nil && a.takes != nil && a.takes(lifecycle.Value{Field: lifecycle.MemoryLimit, Int: *w.Memory}) != "" {
		w.Memory = nil
	}
	return w
}

func (a Attachment) way(f lifecycle.Field) Way {
	way, _ := a.Brings(f, lifecycle.OfContainer)
	return way
}

// trim keeps of a want what is said of fields to be kept.
func trim(w scenario.Want, keep func(lifecycle.Field) bool) scenario.Want {
	drop(keep(lifecycle.CPUSetCPUs), &w.CPUs)
	drop(keep(lifecycle.CPUSetCPUs), &w.Exclusive)
	drop(keep(lifecycle.CPUSetMems), &w.Mems)
	drop(keep(lifecycle.CPUShares), &w.Shares)
	drop(keep(lifecycle.CPUQuota), &w.Quota)
	drop(keep(lifecycle.MemoryLimit), &w.Memory)
	drop(keep(lifecycle.Env), &w.Env)
	drop(keep(lifecycle.MountPoint), &w.Mounts)
	drop(keep(lifecycle.DeviceNode), &w.Devices)
	drop(keep(lifecycle.CDIDevice), &w.CDI)
	drop(keep(lifecycle.BlockIOClass), &w.BlockIOClass)
	drop(keep(lifecycle.RDTClass), &w.RDTClass)
	drop(keep(lifecycle.RDTGroup), &w.RDTGroup)
	drop(keep(lifecycle.RDTGroup), &w.NoGroups)
	drop(keep(lifecycle.RDTSchemata), &w.Schemata)
	drop(keep(lifecycle.CoreSched), &w.Cookie)
	drop(keep(lifecycle.OOMScoreAdj), &w.OOMScoreAdj)
	drop(keep(lifecycle.IOLimit), &w.IOLimits)
	return w
}

func drop[T any](keep bool, into *T) {
	if !keep {
		var zero T
		*into = zero
	}
}
