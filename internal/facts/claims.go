package facts

import (
	"context"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Claims is a source of the CPUs that resource claims give to containers.
type Claims interface {
	// MayGiveCPUs reports whether a container's request has a CDI device of a claim that possibly gives CPUs to the
	// container.
	MayGiveCPUs(ctr *lifecycle.Container) bool
	// Refresh reads which CPUs the CDI devices of claims give to containers. If some of the devices are not known yet,
	// it waits for a short time, at most until ctx ends.
	Refresh(ctx context.Context, devices []string)
	// ForContainer returns the claims that give CPUs to a container; nil for none. It does not block.
	ForContainer(podUID string, ctr *lifecycle.Container) *lifecycle.ClaimGrant
	// HasCPUClaims reports whether the kubelet prepared claims for CPUs for a pod. It does not block.
	HasCPUClaims(podUID string) bool
	ClassClaims
}

// ClassClaims is a source of the resource claims that select a class, a pool or a balloon type for their pods. Such a
// claim names a CDI device of the kind trimtab.io/class, trimtab.io/pool or trimtab.io/balloon.
type ClassClaims interface {
	// ReadCheckpoint reads the kubelet's checkpoint of claims.
	ReadCheckpoint()
	// ClassDevices returns the CDI devices of a pod's claims that select a class, a pool or a balloon type, sorted. The
	// result is from the last ReadCheckpoint.
	ClassDevices(podUID string) []lifecycle.ClaimedDevice
}

// creationEvents are the kinds of events that can report containers which are new to the agent.
var creationEvents = []lifecycle.Kind{lifecycle.CreateContainer, lifecycle.StartContainer, lifecycle.UpdateContainer, lifecycle.Synchronize}

// eachClaimant calls a function for each container of the event that possibly gets CPUs from resource claims. If the
// runtime reports no CDI devices of a container, the function gets a copy of the container. The copy has the CDI
// devices from the agent's record of the container or, if the record has none, from the kubelet.
func (g *Gatherer) eachClaimant(ev *lifecycle.Event, do func(p *lifecycle.Pod, ctr *lifecycle.Container)) {
	if g.o.Claims == nil || !slices.Contains(creationEvents, ev.Kind) {
		return
	}
	eachContainer(ev, func(p *lifecycle.Pod, ctr **lifecycle.Container) {
		c := *ctr
		if len(c.CDIDevices) == 0 {
			names := g.recordedClaims(p, c)
			if len(names) == 0 {
				names = g.knownGrants(p.UID).DevicesOf(c.Name).CDI
			}
			if len(names) > 0 {
				with := *c
				with.CDIDevices, c = names, &with
			}
		}
		if g.o.Claims.MayGiveCPUs(c) {
			do(p, c)
		}
	})
}

// recordedClaims returns the CDI devices of a container's claims, as the agent's record of the container lists them.
// The record is needed because CRI-O does not report the CDI devices of an existing container.
func (g *Gatherer) recordedClaims(p *lifecycle.Pod, ctr *lifecycle.Container) []string {
	if r, stored := g.o.Checkpoint.Record(ctr.ID); stored {
		return r.ClaimDevices
	}
	text := ctr.Annotations[intent.RecordKey]
	if !strings.Contains(text, `"claims":`) {
		return nil // without claims, the record's signature need not be checked here
	}
	r, err := g.o.Signer.Read(p.UID, ctr.Name, text)
	if err != nil {
		return nil // readRecords reports the error
	}
	return r.ClaimDevices
}

// awaitClaims reads the claims of the event's containers, and waits for claims that are not known yet. It waits only if
// claims decide who owns CPUs.
func (g *Gatherer) awaitClaims(ctx context.Context, _ *route.Capabilities, ev *lifecycle.Event, _ *GatheredFacts) (missing bool) {
	g.decideAgainForClaims(ev)
	var devices []string
	hasClaimant := false
	g.eachClaimant(ev, func(_ *lifecycle.Pod, ctr *lifecycle.Container) {
		hasClaimant, devices = true, append(devices, ctr.CDIDevices...)
	})
	if !hasClaimant {
		return false
	}
	if !g.claimsDecideCPUs() { // only a later policy can need the claims, so Refresh reads them but does not wait
		ended, end := context.WithCancel(ctx)
		end()
		ctx = ended
	}
	g.o.Claims.Refresh(ctx, devices)
	return false
}

// readClaims adds to f.Claims the claims that give CPUs to the event's containers. It adds to the event's pods the CDI
// devices of claims that select a class, a pool or a balloon type.
func (g *Gatherer) readClaims(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	g.addClassDevices(ev)
	g.eachClaimant(ev, func(p *lifecycle.Pod, ctr *lifecycle.Container) {
		if grant := g.reportMissingDevices(p.UID, ctr.Name, ctr.CDIDevices, g.o.Claims.ForContainer(p.UID, ctr)); grant != nil {
			put(&f.Claims, ctr.ID, grant)
		}
	})
	if ev.Kind == lifecycle.Inform && ev.Pod != nil && g.o.Claims != nil {
		g.readGrantedClaims(ev.Pod, f)
	}
}

// claimsDecideCPUs reports whether resource claims decide who owns CPUs under the current policy.
func (g *Gatherer) claimsDecideCPUs() bool {
	defer g.o.State.Free()
	return g.o.State.Hold().Policy.ClaimsDecideCPUs()
}
