package facts

import (
	"slices"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// This file reads the CDI devices of claims from the kubelet's PodResources API. Some runtimes do not report a
// container's CDI devices. For them, the agent learns from this API which container of a pod has which claim.

// mustAskForClaims reports whether the agent must ask the kubelet for the claims of a new container before it
// decides the container. This is so if claims decide who owns CPUs, the kubelet's checkpoint has claims for CPUs of the
// pod, and the runtime's request has no CDI device.
func (g *Gatherer) mustAskForClaims(ev *lifecycle.Event) bool {
	if ev.Kind != lifecycle.CreateContainer || ev.Container == nil || len(ev.Container.CDIDevices) > 0 || g.o.Claims == nil || !g.claimsDecideCPUs() {
		return false
	}
	return g.usesClaims(ev.Pod)
}

// podsWithHiddenClaims returns the pods of a Synchronize that have claims for CPUs, but a container without known CDI
// devices. The CDI devices of a container are not known if neither the runtime nor the agent's record of the container
// reports any. If claims do not decide who owns CPUs, podsWithHiddenClaims returns nil.
func (g *Gatherer) podsWithHiddenClaims(ev *lifecycle.Event) (pods []*lifecycle.Pod) {
	if g.o.Claims == nil || !g.claimsDecideCPUs() {
		return nil
	}
	eachContainer(ev, func(p *lifecycle.Pod, ctr **lifecycle.Container) {
		if len((*ctr).CDIDevices) == 0 && g.usesClaims(p) && len(g.recordedClaims(p, *ctr)) == 0 && !slices.Contains(pods, p) {
			pods = append(pods, p)
		}
	})
	return pods
}

// usesClaims reports whether the kubelet prepared resource claims for CPUs for a pod.
func (g *Gatherer) usesClaims(p *lifecycle.Pod) bool {
	return g.o.Claims != nil && p != nil && p.UID != "" && g.o.Claims.HasCPUClaims(p.UID)
}

// readGrantedClaims adds to f.Claims the claims of a pod's existing containers. It handles containers whose CDI devices
// the kubelet reported only after their creation.
func (g *Gatherer) readGrantedClaims(p *lifecycle.Pod, f *engine.Facts) {
	granted := g.knownGrants(p.UID)
	if granted == nil {
		return
	}
	state := g.o.State.Hold()
	claimsDecide := state.Policy.ClaimsDecideCPUs()
	known := map[string]*engine.Container{}
	for _, id := range state.ContainersOf(p.ID) {
		if c := state.Container(id); claimsDecide && c != nil && c.Alive() {
			known[id] = c
		}
	}
	g.o.State.Free()
	for id, c := range known {
		now := c.Claims
		if ctr := (&lifecycle.Container{Name: c.Name, CDIDevices: granted.DevicesOf(c.Name).CDI}); len(c.RequestedDevices.CDI) == 0 && len(c.Claims.Devices()) == 0 && g.o.Claims.MayGiveCPUs(ctr) {
			now = g.o.Claims.ForContainer(p.UID, ctr)
		}
		if now = g.reportMissingDevices(p.UID, c.Name, c.RequestedDevices.CDI, now); now != c.Claims {
			put(&f.Claims, id, now)
		}
	}
}

// reportMissingDevices compares the CDI devices that the kubelet reports for a container with the devices in the
// runtime's request. If the request lacks a device of a claim, the claim gives the container no CPUs of this device.
// Then reportMissingDevices returns the grant with an additional problem. If the request has no devices at all, it
// returns the grant unchanged.
func (g *Gatherer) reportMissingDevices(podUID, container string, requested []string, grant *lifecycle.ClaimGrant) *lifecycle.ClaimGrant {
	if len(requested) == 0 {
		return grant
	}
	for _, name := range g.knownGrants(podUID).DevicesOf(container).CDI {
		if slices.Contains(requested, name) || !g.o.Claims.MayGiveCPUs(&lifecycle.Container{CDIDevices: []string{name}}) {
			continue
		}
		q := lifecycle.Problem{
			Key: "authority", Value: name, Warning: true,
			Reason: "the kubelet's PodResources API reports this device for the container, but the runtime's request lacks the device",
			Then:   "the claim of this device gives the container no CPUs",
		}
		if grant != nil && slices.Contains(grant.Problems, q) {
			continue
		}
		with := lifecycle.ClaimGrant{}
		if grant != nil {
			with = *grant
		}
		with.Problems = append(slices.Clip(with.Problems), q)
		grant = &with
	}
	return grant
}
