// Package none is the placement policy that chooses nothing: containers own CPUs that a
// scheduler assigned them, and the pools are as they are configured.
package none

import (
	"errors"

	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Policy is placement.policy: none.
type Policy struct{}

// Terms lets nobody own CPUs that were not assigned.
func (Policy) Terms(*topology.Machine, placement.Subject) placement.Terms { return placement.Terms{} }

// Choose chooses nothing: whoever owns CPUs by an earlier policy keeps them.
func (Policy) Choose(_ placement.View, _ placement.Subject, w placement.CPURequest) (placement.Assignment, error) {
	return placement.Assignment{CPUs: w.Have}, errors.New("the policy none chooses no CPUs")
}

// Share puts containers into the pools of their classes.
func (Policy) Share(v placement.View, s placement.Subject) placement.Assignment {
	return placement.ShareByClass(v, s)
}

// Layout leaves the pools as they are configured, without owned CPUs.
func (Policy) Layout(p *placement.Pools, d placement.Demand) *placement.Layout { return p.Lay(d) }
