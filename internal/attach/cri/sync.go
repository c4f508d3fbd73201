package cri

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// asking is how many verbose statuses are asked for at once.
const asking = 4

// synchronise rebuilds what is known from the runtime's lists, verbose statuses
// and the records containers carry. From then on calls are held.
func (a *Attachment) synchronise(ctx context.Context) error {
	if err := a.admitted(); err != nil {
		return err
	}
	a.mu.Lock()
	a.serial++
	before := a.serial
	a.mu.Unlock()
	about, kind, err := a.backend.about(ctx)
	if err != nil {
		return err
	}
	// Containers first: calls pass meanwhile, and one whose pod came after a list
	// of the pods would be taken for nobody's.
	_, ctrs, err := a.backend.list(ctx)
	if err != nil {
		return err
	}
	pods, err := a.backend.pods(ctx, "")
	if err != nil {
		return err
	}
	ev, err := a.ask(ctx, pods, ctrs)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.runtime, a.kind, a.can, a.store = about, kind, a.capabilities(kind), newStore()
	for _, p := range ev.Pods {
		a.store.pods[p.ID] = &pod{told: p, born: before}
	}
	for _, c := range ev.Containers {
		kept := *c
		kept.Args, kept.Mounts, kept.Devices = nil, nil, nil // nobody asks for them again
		a.store.ctrs[c.ID] = &ctr{told: &kept, pod: c.PodID, born: before, started: c.State != lifecycle.StateCreated}
	}
	a.mu.Unlock()
	a.tell(ctx, ev)
	a.mu.Lock()
	for _, p := range ev.Pods { // as the handler keeps them, which is once for both
		if k := a.store.pods[p.ID]; k != nil {
			k.told = p
		}
	}
	a.known = true
	a.mu.Unlock()
	debug.FreeOSMemory() // all verbose statuses were read; little of them is kept
	return nil
}

// follow keeps up with the runtime until ctx ends: first until it is known how
// things stand, then by comparing its list with what was told.
func (a *Attachment) follow(ctx context.Context) {
	for ctx.Err() == nil {
		a.mu.Lock()
		known, live := a.known, a.live
		a.mu.Unlock()
		var err error
		if known {
			err = a.compare(ctx)
		} else {
			err = a.synchronise(ctx)
		}
		if ctx.Err() != nil {
			break
		}
		a.noteLive(live, err)
		pause := time.NewTimer(a.o.Look)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
	a.mu.Lock()
	live := a.live
	a.live = false
	a.mu.Unlock()
	if live {
		a.contain("Detached", func() { a.o.Handler.Detached(a, nil) })
	}
}

// noteLive tells of a runtime that comes or goes.
func (a *Attachment) noteLive(live bool, err error) {
	a.mu.Lock()
	a.live = err == nil
	known, state := a.known, StatePassing
	if a.standby {
		state = StateStandby
	}
	a.mu.Unlock()
	switch {
	case err == nil:
		a.enter(StateSynchronised, nil)
		if !live {
			a.contain("Attached", func() { a.o.Handler.Attached(a, a) })
		}
	case known:
		a.forgetForms()
		a.enter(StateLost, err)
		if live {
			a.contain("Detached", func() { a.o.Handler.Detached(a, err) })
		}
	default:
		if a.told(err) {
			a.o.Log.Warn("it is not known what runs; every call passes", logkey.Err, err)
		}
		a.enter(state, err)
	}
}

// told reports whether an error is a new one.
func (a *Attachment) told(err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err == nil || a.err.Error() != err.Error()
}

// compare tells of what ended, or went, without a call of the kubelet's, and
// takes in what came while calls passed.
func (a *Attachment) compare(ctx context.Context) error {
	a.mu.Lock()
	a.serial++
	before := a.serial
	a.mu.Unlock()
	pods, ctrs, err := a.backend.list(ctx)
	if err != nil {
		return err
	}
	states := make(map[string]int32, len(ctrs))
	for _, l := range ctrs {
		states[l.id] = l.state
	}
	there := make(map[string]bool, len(pods))
	for _, l := range pods {
		there[l.id] = true
	}
	for _, e := range a.ended(before, there, states) {
		e()
	}
	return a.adopt(ctx, pods, ctrs)
}

// ended lists what is to be told of what was known before a list was asked for.
func (a *Attachment) ended(before uint64, pods map[string]bool, states map[string]int32) []func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []func()
	for id, c := range a.store.ctrs {
		state, there := states[id]
		if c.born > before || there && (state != exited || c.ended) {
			continue
		}
		kind := lifecycle.StopContainer
		if !there {
			kind = lifecycle.RemoveContainer
		}
		p := &lifecycle.Pod{ID: c.pod}
		if known := a.store.pods[c.pod]; known != nil {
			p = known.told
		}
		told := c.told
		out = append(out, func() {
			a.after(p.ID, func(ctx context.Context) { a.endContainer(ctx, told, p, kind) })
		})
	}
	for id, p := range a.store.pods {
		if p.born > before || pods[id] {
			continue
		}
		out = append(out, func() {
			a.after(id, func(ctx context.Context) { a.endPod(ctx, id, lifecycle.RemovePodSandbox) })
		})
	}
	return out
}

// adopt takes in pods and running containers that nobody told of: their calls
// were given up by the kubelet, or passed. One that cannot be read holds up no
// other. Those the runtime could not describe before are asked about again, beside
// the comparison.
func (a *Attachment) adopt(ctx context.Context, pods, ctrs []listed) error {
	a.forgetRetries(pods, ctrs)
	a.strangers.begin()
	var lost error
	for _, l := range pods {
		switch known := a.pod(l.id); {
		case l.state != ready:
		case known == nil && a.strangers.old(l.id):
			lost = errors.Join(lost, a.adoptPod(ctx, l.id, nil))
		case known != nil && known.Unread != "":
			a.retry(l.id, func(ctx context.Context) error { return a.adoptPod(ctx, l.id, known) })
		}
	}
	for _, l := range ctrs {
		p := a.pod(l.pod)
		switch known, _ := a.container(l.id); {
		case p == nil || l.state == exited:
		case known == nil && l.state == running && a.strangers.old(l.id):
			lost = errors.Join(lost, a.adoptContainer(ctx, l, p, nil))
		case known != nil && known.Unread != "" && p.Unread == "":
			a.retry(l.id, func(ctx context.Context) error { return a.adoptContainer(ctx, l, p, known) })
		}
	}
	return lost
}

// The states a comparison knows.
const (
	ready   = int32(cri.PodSandboxState_SANDBOX_READY)
	running = int32(cri.ContainerState_CONTAINER_RUNNING)
	exited  = int32(cri.ContainerState_CONTAINER_EXITED)
)
