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
	// MayGiveCPUs reports whether claims may give CPUs to a container.
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

// ClassClaims is a source of the classes, pools and balloon types that resource claims name for pods.
type ClassClaims interface {
	// ReadCheckpoint reads the claims of pods again.
	ReadCheckpoint()
	// ClassDevices returns the CDI devices by which claims name classes, pools and balloon types for a pod, sorted. The
	// result is from the last ReadCheckpoint.
	ClassDevices(podUID string) []lifecycle.ClaimedDevice
}

// creationEvents are the events whose containers the state may not have yet.
var creationEvents = []lifecycle.Kind{lifecycle.CreateContainer, lifecycle.StartContainer, lifecycle.UpdateContainer, lifecycle.Synchronize}

// eachClaimant calls a function for each container of the event to which claims may give CPUs.
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

// recordedClaims returns the claimed devices in a container's record. CRI-O does not report the CDI devices of an
// existing container.
func (g *Gatherer) recordedClaims(p *lifecycle.Pod, ctr *lifecycle.Container) []string {
	if r, late := g.o.Checkpoint.Record(ctr.ID); late {
		return r.ClaimDevices
	}
	text := ctr.Annotations[intent.RecordKey]
	if !strings.Contains(text, `"claims":`) {
		return nil // most records have no claims, so their signature need not be checked here
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
	concerns := false
	g.eachClaimant(ev, func(_ *lifecycle.Pod, ctr *lifecycle.Container) {
		concerns, devices = true, append(devices, ctr.CDIDevices...)
	})
	if !concerns {
		return false
	}
	if !g.claimsDecideCPUs() { // claims matter only after a change of the policy, so the event does not wait for them
		now, end := context.WithCancel(ctx)
		end()
		ctx = now
	}
	g.o.Claims.Refresh(ctx, devices)
	return false
}

// readClaims adds the claims of the event's containers.
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
