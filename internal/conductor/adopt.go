package conductor

import (
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Takeover is the result of SimulateTakeover, which simulates that this agent takes over the node from another agent.
type Takeover struct {
	// State is the state after the simulated takeover.
	State *engine.State
	// KernelCPUs has the CPUs that the kernel lets each container use now, as kernel lists, by container id. "" means
	// all.
	KernelCPUs map[string]string
	// FormerContainers has the CPUs and memory nodes that the other agent gave to each container, by container id.
	FormerContainers map[string]lifecycle.FormerContainer
}

// SimulateTakeover simulates a start of the agent that takes over the running containers from another agent.
// formerContainers returns the CPUs and memory nodes that the other agent gave to the containers of a Synchronize
// event. SimulateTakeover changes neither the conductor's state nor the kernel.
func (c *Conductor) SimulateTakeover(formerContainers func(*lifecycle.Event) (map[string]lifecycle.FormerContainer, error)) (Takeover, error) {
	s := c.CopyState()
	ev := s.SynchronizeEvent()
	former, err := formerContainers(ev)
	if err != nil {
		return Takeover{}, err
	}
	f := engine.Facts{FormerAgent: former}
	c.facts.Read(&Capabilities{}, ev, &f)
	f.OwnedCPUs, f.Balloons = nil, nil // an agent that takes over has no earlier decisions of its own
	s.Commit(engine.Decide(s, ev, f))
	return Takeover{State: s, KernelCPUs: f.KernelCPUs, FormerContainers: former}, nil
}
