// Package none is the placement policy that chooses no CPUs: containers own the CPUs that a
// scheduler assigned to them, and pools have their configured CPUs.
package none

import (
	"errors"

	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Policy is the policy for placement.policy: none.
type Policy struct{}

// Terms returns the zero Terms: a container owns CPUs only if a scheduler assigned them to the container.
func (Policy) Terms(*topology.Machine, placement.Subject) placement.Terms { return placement.Terms{} }

// Choose returns an error, because this policy chooses no CPUs. Containers that own CPUs because of an
// earlier policy keep them.
func (Policy) Choose(_ placement.View, _ placement.Subject, w placement.CPURequest) (placement.Assignment, error) {
	return placement.Assignment{CPUs: w.UsableCPUs}, errors.New("placement.policy is none: the agent chooses no CPUs")
}

// Share puts containers into the pools of their classes.
func (Policy) Share(v placement.View, s placement.Subject) placement.Assignment {
	return placement.ShareByClass(v, s)
}

// Layout gives pools their configured CPUs, except the CPUs that containers own.
func (Policy) Layout(p *placement.Pools, d placement.Demand) *placement.Layout {
	return p.DefaultLayout(d)
}
