package parity

import (
	"maps"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// RemoveUnsupported removes from a scenario's step the expectations that the attachment declares it cannot meet. It
// replaces the step's wants and does not modify them.
func (a Attachment) RemoveUnsupported(s *scenario.Step) {
	if !a.Refuses {
		s.Rejected = ""
	}
	wants := make(map[scenario.Ref]scenario.Want, len(s.Want))
	for ref, w := range s.Want {
		if w.State == "created" {
			w = a.withoutUnsupportedLimit(w)
		}
		wants[ref] = trim(w, func(f lifecycle.Field) bool {
			way := a.way(f)
			if f == lifecycle.CoreSched {
				return way.BeforeStart() // cookies that are set late get their numbers in no fixed order
			}
			return way != Never && (w.State != "created" || way == Created)
		})
	}
	s.Want = wants
}

// AtStart returns the expectations that must hold at a container's first instruction.
func (a Attachment) AtStart(w scenario.Want) scenario.Want {
	if !a.reaches {
		w = a.withoutUnsupportedLimit(w)
	}
	return trim(w, func(f lifecycle.Field) bool { return a.way(f).BeforeStart() })
}

// withoutUnsupportedLimit removes the memory limit that the runtime does not support at a creation, because only
// the kernel has it.
func (a Attachment) withoutUnsupportedLimit(w scenario.Want) scenario.Want {
	if w.Memory != nil && a.takes != nil && a.takes(lifecycle.Value{Field: lifecycle.MemoryLimit, Int: *w.Memory}) != "" {
		w.Memory = nil
	}
	return w
}

func (a Attachment) way(f lifecycle.Field) Way {
	way, _ := a.Delivers(f, lifecycle.OfContainer)
	return way
}

// trim keeps the expectations about those fields for which keep returns true.
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
	w.Process = maps.Clone(w.Process)
	maps.DeleteFunc(w.Process, func(name, _ string) bool {
		var f lifecycle.Field
		word, _, _ := strings.Cut(name, " ")
		return f.UnmarshalText([]byte(word)) == nil && !keep(f)
	})
	return w
}

func drop[T any](keep bool, into *T) {
	if !keep {
		var zero T
		*into = zero
	}
}
