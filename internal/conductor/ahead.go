package conductor

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// AheadOptions configure an Ahead.
type AheadOptions struct {
	// Pending returns the pods that the kubelet knows and has not started, with the requests that the kubelet
	// will send to the runtime.
	Pending func() []engine.PlannedPod
	// Timeout is how long CPUs and devices are reserved for a pod that no runtime reports.
	Timeout time.Duration
	Log     *slog.Logger
}

// Ahead decides pods ahead: as soon as the kubelet knows them, before a runtime creates them. Then a creation waits
// neither for resource plugins nor for other containers to lose CPUs. Ahead reserves CPUs and devices for such a pod.
// If no runtime creates the pod, Ahead frees them when the pod is deleted or changed, or after AheadOptions.Timeout.
type Ahead struct {
	c            *Conductor
	o            AheadOptions
	wake         chan struct{}  // wakes Run
	decidingPods sync.WaitGroup // counts pods that are being decided
	decideSlots  chan struct{}  // limits how many pods are decided at the same time

	mu   sync.Mutex           // guards the fields below
	pods map[string]*aheadPod // by pod UID
}

// aheadPod is a pod that is, or was, decided ahead.
type aheadPod struct {
	plan      engine.PlannedPod // the pod with its containers, as AheadOptions.Pending first returned it
	firstSeen time.Time         // when this Ahead first saw the pod
	// deciding means that the pod's containers are being decided. endedMeanwhile means that the pod was deleted or
	// changed during this decision. The CPUs and devices that the decision reserves must then be freed.
	deciding, endedMeanwhile bool
	// inherited means that CPUs or devices were reserved for the pod before this Ahead first saw it: by an earlier
	// agent, or before the runtime connected again. No source has reported the pod's spec since.
	inherited bool
	// reported means that a runtime has reported the pod.
	reported bool
	// expired means that no runtime reported the pod within AheadOptions.Timeout.
	expired bool
	// reserved means that the last decision reserved CPUs or devices for the pod. Otherwise the agent decides the pod
	// again at retryTime. retryPause is the pause until retryTime. It doubles at each try.
	reserved   bool
	retryPause time.Duration
	retryTime  time.Time
	// forgetCount is the value of State.ForgetCount when the pod was decided. If the value has changed since, a
	// Synchronize or a new policy has removed the reservation.
	forgetCount uint64
}

const (
	// aheadInterval is the interval between calls of comparePods, and the pause before the first retry for a pod.
	aheadInterval = time.Second
	// aheadGrace is how long the CPUs and devices of an inherited pod stay reserved while no source reports the pod's
	// spec.
	aheadGrace = 5 * time.Second
	// maxDecidingPods limits the pods that are decided at the same time.
	maxDecidingPods = 16
)

// NewAhead makes an Ahead. It decides nothing before Run.
func NewAhead(c *Conductor, o AheadOptions) *Ahead {
	return &Ahead{c: c, o: o, wake: make(chan struct{}, 1), decideSlots: make(chan struct{}, maxDecidingPods), pods: map[string]*aheadPod{}}
}

// Changed makes Run soon read the list of pods again, because pods may be new, changed or deleted. It does not block.
func (a *Ahead) Changed() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run decides pods until ctx ends. Reserved CPUs then stay reserved, because the next agent finds them in the
// checkpoint.
func (a *Ahead) Run(ctx context.Context) {
	defer a.decidingPods.Wait()
	check := time.NewTicker(aheadInterval)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-check.C:
		}
		a.comparePods(ctx)
	}
}

// comparePods compares the pods that the kubelet knows with the pods for which the agent has reserved CPUs or devices.
func (a *Ahead) comparePods(ctx context.Context) { //nolint:gocognit // one pass over the pods; their cases are easier to check in one place
	pending := map[string]engine.PlannedPod{}
	for _, p := range a.o.Pending() {
		pending[p.Pod.UID] = p
	}
	synced, arrived, kept, forgotten := a.knownPods(pending)
	if !synced { // no runtime has listed its pods yet
		return
	}
	now := a.c.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid := range kept {
		if a.pods[uid] == nil {
			a.pods[uid] = &aheadPod{plan: engine.PlannedPod{Pod: lifecycle.Pod{UID: uid}}, firstSeen: now, inherited: true}
		}
	}
	for uid, p := range a.pods {
		plan, is := pending[uid]
		switch {
		case p.deciding:
			p.endedMeanwhile = p.endedMeanwhile || !arrived[uid] && (!is || plan.Spec != p.plan.Spec)
		case p.reported && !is:
			delete(a.pods, uid)
		case p.reported || arrived[uid]:
			// When a pod has ended, a source possibly lists the pod for a while as if it had not started. While a pod
			// is in a.pods with reported set, it is not decided again. So it stays there until no source lists it.
			p.reported = true
		case p.inherited && is:
			p.plan, p.inherited = plan, false
			a.start(ctx, p, forgotten)
		case p.inherited && now.Sub(p.firstSeen) < aheadGrace:
		case !is || plan.Spec != p.plan.Spec:
			a.free(p)
			delete(a.pods, uid)
		case p.expired:
		case now.Sub(p.firstSeen) >= a.o.Timeout:
			p.expired = true
			a.free(p)
			a.o.Log.Debug("the agent decided about a pod before the pod's creation, but no runtime reported the pod in time; the agent decides again at the creation", logkey.Pod, plan.Pod.Name)
		case kept[uid]:
		case p.reserved && p.forgetCount == forgotten: // the pod has used its reservation: it was created, and has ended since
			p.reported = true
		case !now.Before(p.retryTime):
			// The last decision reserved nothing. A new decision possibly reserves something, for example because the
			// configuration has changed, or because the kubelet has assigned the pod's devices.
			a.start(ctx, p, forgotten)
		}
	}
	for uid, plan := range pending {
		if a.pods[uid] != nil {
			continue
		}
		if a.pods[uid] = (&aheadPod{plan: plan, firstSeen: now, reported: arrived[uid]}); !arrived[uid] {
			a.start(ctx, a.pods[uid], forgotten)
		}
	}
}

// knownPods returns four facts. synced reports whether a runtime has listed the node's pods. arrived has the pods that
// a runtime has reported. kept has the pods for which CPUs or devices are reserved. forgotten is State.ForgetCount: it
// grows when all reservations are removed.
func (a *Ahead) knownPods(pending map[string]engine.PlannedPod) (synced bool, arrived, kept map[string]bool, forgotten uint64) {
	a.mu.Lock()
	uids := maps.Clone(pending)
	for uid, p := range a.pods {
		uids[uid] = p.plan
	}
	a.mu.Unlock()
	arrived, kept = map[string]bool{}, map[string]bool{}
	n := a.c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid := range uids {
		arrived[uid] = n.state.IsReported(uid)
	}
	for _, uid := range n.state.ExpectedPods() {
		arrived[uid], kept[uid] = n.state.IsReported(uid), true
	}
	return !a.c.lastSync.IsZero(), arrived, kept, n.state.ForgetCount()
}

// start decides a pod in a goroutine of its own, because resource plugins can be slow. forgotten is the current
// State.ForgetCount. The caller holds mu.
func (a *Ahead) start(ctx context.Context, p *aheadPod, forgotten uint64) {
	p.deciding, p.forgetCount, p.retryPause = true, forgotten, max(2*p.retryPause, aheadInterval)
	p.retryTime = a.c.now().Add(p.retryPause)
	a.decidingPods.Go(func() {
		kept := false
		select {
		case a.decideSlots <- struct{}{}:
			kept = a.decide(ctx, &p.plan)
			<-a.decideSlots
		case <-ctx.Done():
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if p.deciding, p.reserved = false, kept; p.endedMeanwhile {
			p.endedMeanwhile = false
			a.free(p)
		}
	})
}

// decide decides the containers of a pod in the order of the pod's spec. kept reports whether CPUs or devices are now
// reserved for at least one container.
func (a *Ahead) decide(ctx context.Context, plan *engine.PlannedPod) (kept bool) {
	for i := range plan.Containers {
		if c, ok := plan.Spec.Container(plan.Containers[i].Name); !ok || c.Kind == lifecycle.Ephemeral {
			continue
		}
		ev := &lifecycle.Event{Kind: lifecycle.Expect, Pod: &plan.Pod, Container: &plan.Containers[i]}
		got, ok := a.c.facts.Expect(ctx, ev)
		if !ok || ctx.Err() != nil {
			return kept
		}
		w := a.c.newWork(nil, ev)
		w.facts.HookServers = got.HookServers
		_, _ = a.c.run(w)
		kept = kept || w.report.Plan != nil && w.report.Plan.NotExpectedReason == ""
	}
	return kept
}

// free frees the CPUs and devices that are reserved for a pod. The caller holds mu.
func (a *Ahead) free(p *aheadPod) {
	_, _ = a.c.run(a.c.newWork(nil, &lifecycle.Event{Kind: lifecycle.Expect, Pod: &p.plan.Pod}))
	a.c.facts.ReleaseExpected(p.plan.Pod.UID)
	p.reserved = false
}
