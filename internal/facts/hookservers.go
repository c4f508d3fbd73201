package facts

import (
	"context"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/record"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// HookServers are external hook servers. The agent asks them about an event before it decides the event, so that a
// slow server delays only the container of the event.
type HookServers interface {
	// Asks reports whether the agent asks any server about a kind of event, or notifies any server of such events.
	Asks(kind lifecycle.Kind) bool
	// Ask returns the servers' answers for the event's container or pod. It waits at most for the servers' own time
	// limit. The error is a refusal: the event must fail.
	Ask(ctx context.Context, ev *lifecycle.Event) (lifecycle.HookServerAnswer, error)
	// Notify notifies the servers of an event that has ended. It does not wait.
	Notify(ev *lifecycle.Event)
}

// Wants returns all kinds of events that any hook server may need. The list does not depend on the present servers,
// because the agent subscribes to events only once, and hook servers may be added later.
func (g *Gatherer) Wants() []lifecycle.Kind {
	if g.o.HookServers == nil {
		return nil
	}
	return []lifecycle.Kind{
		lifecycle.RunPodSandbox, lifecycle.CreateContainer, lifecycle.StartContainer, lifecycle.PostStartContainer,
		lifecycle.UpdateContainer, lifecycle.StopContainer, lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox,
	}
}

// Notify notifies hook servers of an event for which the agent decides nothing.
func (g *Gatherer) Notify(ev *lifecycle.Event) {
	g.addAnswers(ev)
	if ev.Pod == nil {
		return
	}
	if past := g.notificationEvent(ev, ev.Kind); past != nil {
		g.o.HookServers.Notify(past)
	}
}

// AskBeforePod returns the answer of hook servers for a pod whose sandbox does not exist yet.
func (g *Gatherer) AskBeforePod(ctx context.Context, can *route.Capabilities, pod *lifecycle.Pod) (lifecycle.HookServerAnswer, error) {
	ev := &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}
	ctx, _, free := limitWaits(ctx, can, ev)
	defer free()
	return g.ask(ctx, can, ev)
}

// askHookServers asks hook servers about an event. It also builds the notification for the end of the event now,
// because the state may no longer have the container when the event ends.
func (g *Gatherer) askHookServers(ctx context.Context, can *route.Capabilities, ev *lifecycle.Event, got *GatheredFacts) (missing bool) {
	g.addAnswers(ev)
	switch {
	case ev.Pod == nil:
		return false
	case ev.Kind == lifecycle.StartContainer && !can.CarriesRecords():
		// An attachment that cannot write records into annotations reports a start only after the container has
		// started. So hook servers also get the notification that the container has started.
		got.notifyAtEnd = g.notificationEvent(ev, lifecycle.PostStartContainer)
	case ev.Kind == lifecycle.PostStartContainer, ev.Kind == lifecycle.StopContainer, ev.Kind == lifecycle.StopPodSandbox:
		got.notifyAtEnd = g.notificationEvent(ev, ev.Kind)
		return false
	case ev.Kind == lifecycle.RunPodSandbox && can.AsksBeforePod:
		return false
	}
	got.HookServers, got.refusal = g.ask(ctx, can, ev)
	if o := got.HookServers; ev.Kind == lifecycle.RunPodSandbox && len(o.Labels)+len(o.Annotations) > 0 {
		g.o.Checkpoint.SetOverlay(ev.Pod.ID, record.Overlay{Labels: o.Labels, Annotations: o.Annotations})
		g.addAnswers(ev)
	}
	return false
}

// asks reports whether hook servers are asked about a kind of event, or notified of such events.
func (g *Gatherer) asks(kind lifecycle.Kind) bool {
	return g.o.HookServers != nil && g.o.HookServers.Asks(kind)
}

// notificationEvent returns the event of which hook servers are notified, or nil if no server needs events of this
// kind.
func (g *Gatherer) notificationEvent(ev *lifecycle.Event, kind lifecycle.Kind) *lifecycle.Event {
	if !g.asks(kind) {
		return nil
	}
	past := g.withStoredValues(ev)
	past.Kind = kind
	return past
}

// ask asks hook servers about one event. If a server refuses the event, ask returns an error if the attachment can
// still fail the event, and otherwise a problem. After a panic, ask returns an empty answer.
func (g *Gatherer) ask(ctx context.Context, can *route.Capabilities, ev *lifecycle.Event) (o lifecycle.HookServerAnswer, err error) {
	if !g.asks(ev.Kind) {
		return o, nil
	}
	defer func() {
		if r := recover(); r != nil {
			g.o.Log.Error("the agent could not ask hook servers", logkey.Panic, r, logkey.Stack, string(debug.Stack()))
			g.o.CountPanic(lifecycle.HookServerName)
			o, err = lifecycle.HookServerAnswer{}, nil
		}
	}()
	o, err = g.o.HookServers.Ask(ctx, g.withStoredValues(ev))
	if err == nil || can.CarriesRecords() {
		return o, err
	}
	o.Problems = append(o.Problems, lateRefusal(lifecycle.HookServerName, ev.Kind.String(), err, can))
	return o, nil
}

// addAnswers adds the labels and annotations from earlier answers of hook servers to the pods of an event. It replaces
// these pods by copies.
func (g *Gatherer) addAnswers(ev *lifecycle.Event) {
	eachPod(ev, func(p **lifecycle.Pod) {
		if o, wanted := g.o.Checkpoint.Overlay((*p).ID); wanted {
			n := **p
			n.Labels, n.Annotations = withEntries(n.Labels, o.Labels), withEntries(n.Annotations, o.Annotations)
			*p = &n
		}
	})
}

// withEntries returns a copy of labels or annotations with additional entries. It leaves out the annotation that holds
// the agent's record of a container, because only the agent writes records.
func withEntries(entries, additional map[string]string) map[string]string {
	if len(additional) == 0 {
		return entries
	}
	n := maps.Clone(entries)
	for k, v := range additional {
		if k != intent.RecordKey {
			put(&n, k, v)
		}
	}
	return n
}

// withStoredValues returns a copy of an event, with the values that the state has for its pod and container. These are
// the requested values, changed by the earlier answers of hook servers. So hook servers need not store their answers.
func (g *Gatherer) withStoredValues(ev *lifecycle.Event) *lifecycle.Event {
	defer g.o.State.Free()
	s := g.o.State.Hold()
	out := &lifecycle.Event{Kind: ev.Kind, Pod: ev.Pod, Container: ev.Container, Requested: ev.Requested}
	if p := s.Pod(ev.Pod.ID); p != nil && ev.Kind != lifecycle.RunPodSandbox {
		out.Pod = p.Pod
	}
	if ev.Container == nil {
		return out
	}
	n := *ev.Container
	if _, hasRecord := n.Annotations[intent.RecordKey]; hasRecord {
		n.Annotations = maps.Clone(n.Annotations)
		delete(n.Annotations, intent.RecordKey)
	}
	if known := s.Container(n.ID); known != nil && ev.Kind != lifecycle.CreateContainer {
		requested := engine.MergeUpdate(known.Pristine, ev.Requested)
		n.Resources.CPU, n.Resources.Memory.Limit, n.Resources.Hugepages = requested.CPU, requested.Memory.Limit, requested.Hugepages
		for _, v := range engine.NotOverridden(known.HookServerValues, ev.Requested) {
			setValue(&n, v)
		}
	}
	out.Container = &n
	return out
}

// setValue sets the field of a container that v.Field names to the value v.
func setValue(c *lifecycle.Container, v lifecycle.Value) {
	r := &c.Resources
	switch v.Field {
	case lifecycle.CPUShares:
		r.CPU.Shares = lifecycle.Some(uint64(max(v.Int, 0)))
	case lifecycle.CPUQuota:
		r.CPU.Quota = lifecycle.Some(v.Int)
	case lifecycle.CPUPeriod:
		r.CPU.Period = lifecycle.Some(uint64(max(v.Int, 0)))
	case lifecycle.CPUSetCPUs:
		r.CPU.CPUs = v.Text
	case lifecycle.CPUSetMems:
		r.CPU.Mems = v.Text
	case lifecycle.MemoryLimit:
		r.Memory.Limit = lifecycle.Some(v.Int)
	case lifecycle.OOMScoreAdj:
		c.OOMScoreAdj = lifecycle.Some(v.Int)
	case lifecycle.Unified:
		r.Unified = maps.Clone(r.Unified)
		put(&r.Unified, v.Key, v.Text)
	case lifecycle.Annotation:
		c.Annotations = maps.Clone(c.Annotations)
		put(&c.Annotations, v.Key, v.Text)
	case lifecycle.Env:
		c.Env = slices.DeleteFunc(slices.Clone(c.Env), func(e string) bool { return strings.HasPrefix(e, v.Key+"=") })
		if !v.Remove {
			c.Env = append(c.Env, v.Key+"="+v.Text)
		}
	}
}
