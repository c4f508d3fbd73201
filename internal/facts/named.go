package facts

import (
	"context"
	"slices"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// rereadClaims reads the kubelet's checkpoint of claims before a pod or a container is decided.
func (g *Gatherer) rereadClaims(_ context.Context, _ *route.Capabilities, ev *lifecycle.Event, _ *GatheredFacts) (missing bool) {
	switch ev.Kind {
	case lifecycle.RunPodSandbox, lifecycle.CreateContainer, lifecycle.Synchronize, lifecycle.Expect:
		if g.o.Claims != nil {
			g.o.Claims.ReadCheckpoint()
		}
	default:
	}
	return false
}

// decideAgainForClaims decides the pod of a new container again if the pod's claims name devices that the earlier
// decision did not know.
func (g *Gatherer) decideAgainForClaims(ev *lifecycle.Event) {
	if g.o.Claims == nil || ev.Kind != lifecycle.CreateContainer || ev.Pod == nil || len(g.o.Claims.ClassDevices(ev.Pod.UID)) == 0 {
		return
	}
	for _, p := range g.podsWhere(func(s *engine.State) []*engine.Pod { return []*engine.Pod{s.Pod(ev.Pod.ID)} }, func(p *engine.Pod) bool {
		return !slices.Equal(p.Pod.Claimed, g.classDevices(p.Pod.UID, p.Pod.Claimed))
	}) {
		g.o.DecideAgain(p)
	}
}

// addClassDevices sets the field Claimed of the event's pods to the CDI devices of claims that select a class, a pool
// or a balloon type. A pod keeps the devices that it had at its last decision. These devices come from the state or,
// after a restart, from the records of the pod's containers.
func (g *Gatherer) addClassDevices(ev *lifecycle.Event) {
	if g.o.Claims == nil {
		return
	}
	before := g.devicesBefore(ev)
	eachPod(ev, func(p **lifecycle.Pod) {
		if all := g.classDevices((*p).UID, before[(*p).ID]); len(all) > 0 {
			with := **p
			with.Claimed, *p = all, &with
		}
	})
}

// devicesBefore returns, by pod id, the value that the field Claimed of the event's pods had at the last decision about
// each pod.
func (g *Gatherer) devicesBefore(ev *lifecycle.Event) map[string][]lifecycle.ClaimedDevice {
	var before map[string][]lifecycle.ClaimedDevice
	state := g.o.State.Hold()
	eachPod(ev, func(p **lifecycle.Pod) {
		if known := state.Pod((*p).ID); known != nil && known.Pod.UID == (*p).UID && len(known.Pod.Claimed) > 0 {
			put(&before, known.Pod.ID, known.Pod.Claimed)
		}
	})
	g.o.State.Free()
	if ev.Kind != lifecycle.Synchronize && ev.Kind != lifecycle.StartContainer && ev.Kind != lifecycle.UpdateContainer {
		return before
	}
	eachContainer(ev, func(p *lifecycle.Pod, ctr **lifecycle.Container) {
		for _, device := range g.recordedClaims(p, *ctr) {
			if all := before[p.ID]; lifecycle.IsClassDevice(device) && p.ID != "" {
				put(&before, p.ID, append(slices.Clip(all), lifecycle.ClaimedDevice{Device: device}))
			}
		}
	})
	return before
}

// classDevices returns the new value of the field Claimed of a pod, sorted. It has the devices of the pod's present
// claims that select a class, a pool or a balloon type, and the devices in the parameter before.
func (g *Gatherer) classDevices(podUID string, before []lifecycle.ClaimedDevice) []lifecycle.ClaimedDevice {
	now := g.o.Claims.ClassDevices(podUID)
	has := func(device string) bool {
		return slices.ContainsFunc(now, func(c lifecycle.ClaimedDevice) bool { return c.Device == device })
	}
	for _, c := range before {
		if !has(c.Device) {
			now = append(slices.Clip(now), c)
			slices.SortFunc(now, lifecycle.ClaimedDevice.Compare) // now is a copy, because append has copied the clipped slice
		}
	}
	return now
}
