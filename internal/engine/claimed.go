package engine

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// claimDevices returns the CDI devices of a container's resource claims, and the CDI devices with which claims of its
// pod select a class, pool or balloon type. The container's record stores these devices.
func claimDevices(g *lifecycle.ClaimGrant, p *lifecycle.Pod) []string {
	names := g.Devices()
	for _, c := range p.Claimed {
		if !slices.Contains(names, c.Device) {
			names = append(names, c.Device)
		}
	}
	return names
}

// withClaims returns the pod known with the claimed CDI devices of now, which is the same pod as the current event
// reports it. If now has no claimed devices, withClaims returns known unchanged.
func withClaims(known, now *lifecycle.Pod) *lifecycle.Pod {
	if len(now.Claimed) == 0 || slices.Equal(known.Claimed, now.Claimed) {
		return known
	}
	with := *known
	with.Claimed = now.Claimed
	return &with
}

// reportUnclaimed adds a problem for each CDI device in the runtime's request that would select a class, pool or
// balloon type, but belongs to no resource claim of the pod. Another program may have added such a device.
func (c *Container) reportUnclaimed(p *lifecycle.Pod) {
	for _, name := range c.RequestedDevices.CDI {
		if !lifecycle.IsClassDevice(name) || slices.ContainsFunc(p.Claimed, func(d lifecycle.ClaimedDevice) bool { return d.Device == name }) {
			continue
		}
		c.decision.priorProblems = append(slices.Clip(c.decision.priorProblems), lifecycle.Problem{
			Key: lifecycle.KindOfCDI(name), Value: intent.Printable(name), Refused: true,
			Reason: "the checkpoint of the kubelet's DRA manager has no claim of the pod with this CDI device", Then: "the agent ignores the class, pool or balloon type that the device selects",
		})
	}
}
