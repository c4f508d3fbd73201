package engine

import "github.com/trimtab/trimtab/internal/placement"

// CPUClasses returns which CPU class (frequencies and idle states) the CPUs should have now. It returns nil if the
// policy has no CPU classes, or if placement is off.
func (s *State) CPUClasses() []placement.ClassCPUs {
	if s.layout.CPUClasses == nil || !s.Policy.PlacementOn {
		return nil
	}
	return s.layout.CPUClasses(s.layout)
}
