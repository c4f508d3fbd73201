package conductor

import (
	"context"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/record"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// Outsiders are policies that are no part of Trimtab: hook servers. They are
// asked before an event takes its turn, so that a slow one holds up its own pod
// alone.
type Outsiders interface {
	// Asks reports whether anybody is to be asked, or told, of a kind of event.
	Asks(kind lifecycle.Kind) bool
	// Ask returns what is wanted of the event's container or pod, within a time of
	// its own. The error is a no: the event must not go on.
	Ask(ctx context.Context, ev *lifecycle.Event) (lifecycle.Outside, error)
	// Tell tells of an event that is over. It does not wait.
	Tell(ev *lifecycle.Event)
}

// outsideKinds are the events outsiders may want to know of. A runtime is told
// once which events we want, and outsiders come and go.
var outsideKinds = []lifecycle.Kind{
	lifecycle.RunPodSandbox, lifecycle.CreateContainer, lifecycle.StartContainer, lifecycle.PostStartContainer,
	lifecycle.UpdateContainer, lifecycle.StopContainer, lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox,
}

// NoOutsiders is nobody.
type NoOutsiders struct{}

// Asks is always false.
func (NoOutsiders) Asks(lifecycle.Kind) bool { return false }

// Ask returns nothing.
func (NoOutsiders) Ask(context.Context, *lifecycle.Event) (lifecycle.Outside, error) {
	return lifecycle.Outside{}, nil
}

// Tell does nothing.
func (NoOutsiders) Tell(*lifecycle.Event) {}

// PodAsker is a Carrier that asks BeforePod before a sandbox is made. There the
// answer reaches the runtime; elsewhere sandboxes are told of when they exist.
type PodAsker interface {
	AsksBeforePod() bool
}

func asksBeforePod(c Carrier) bool {
	a, ok := c.(PodAsker)
	return ok && a.AsksBeforePod()
}

// Tell tells outsiders of an event that nothing is decided about.
func (c *Conductor) Tell(ev lifecycle.Event) {
	c.overlay(&ev)
	if ev.Pod != nil && c.outsiders.Asks(ev.Kind) {
		c.outsiders.Tell(c.stored(&ev))
	}
}

// BeforePod returns what is wanted from outside of a pod whose sandbox does not
// exist yet. The error is a *Rejection.
func (c *Conductor) BeforePod(ctx context.Context, from Carrier, pod *lifecycle.Pod) (lifecycle.Outside, error) {
	ev := &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}
	ctx, _, free := budget(ctx, from, ev)
	defer free()
	return c.ask(ctx, from, ev)
}

// outside asks about an event what can be asked. What is told afterwards is
// returned as a function.
func (c *Conductor) outside(ctx context.Context, from Carrier, ev *lifecycle.Event) (o lifecycle.Outside, after func(), err error) {
	after = func() {}
	c.overlay(ev)
	switch {
	case ev.Pod == nil:
		return o, after, nil
	case ev.Kind == lifecycle.StartContainer && !stamps(from):
		// An attachment beside the runtime tells of starts alone, afterwards.
		if c.outsiders.Asks(lifecycle.PostStartContainer) {
			started := c.stored(ev)
			started.Kind = lifecycle.PostStartContainer
			after = func() { c.outsiders.Tell(started) }
		}
	case ev.Kind == lifecycle.PostStartContainer, ev.Kind == lifecycle.StopContainer, ev.Kind == lifecycle.StopPodSandbox:
		if c.outsiders.Asks(ev.Kind) {
			told := c.stored(ev) // it may be forgotten afterwards
			after = func() { c.outsiders.Tell(told) }
		}
		return o, after, nil
	case ev.Kind == lifecycle.RunPodSandbox && asksBeforePod(from):
		return o, after, nil
	}
	o, err = c.ask(ctx, from, ev)
	if ev.Kind == lifecycle.RunPodSandbox && len(o.Labels)+len(o.Annotations) > 0 {
		c.checkpoint.NotePod(ev.Pod.ID, record.Overlay{Labels: o.Labels, Annotations: o.Annotations})
		c.overlay(ev)
	}
	return o, after, err
}

// ask asks about one event. A no counts where the attachment can still hold the
// event; elsewhere it is reported. A panic costs the answer.
func (c *Conductor) ask(ctx context.Context, from Carrier, ev *lifecycle.Event) (o lifecycle.Outside, err error) {
	if !c.outsiders.Asks(ev.Kind) {
		return o, nil
	}
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("asking outside failed", logkey.Panic, r, logkey.Stack, string(debug.Stack()))
			c.recorder.HookError(lifecycle.OutsideHook)
			o, err = lifecycle.Outside{}, nil
		}
	}()
	o, err = c.outsiders.Ask(ctx, c.stored(ev))
	switch {
	case err == nil:
		return o, nil
	case stamps(from):
		return o, &Rejection{Reason: err.Error()}
	}
	o.Problems = append(o.Problems, lifecycle.Problem{
		Hook: lifecycle.OutsideHook, Value: ev.Kind.String(), Refused: true,
		Reason: err.Error(), Then: from.Name() + " is told of it when it has happened: it stays",
	})
	return o, nil
}

// refuse reports a no that came before an event took its turn.
func (c *Conductor) refuse(from Carrier, ev *lifecycle.Event, err error) Answer {
	w := &work{op: logkey.ID(c.ops.Add(1)), from: from, ev: ev}
	c.refused(w, err)
	return Answer{Op: w.op}
}

// stored is an event with its pod and container as they are known: as they were
// asked for, with what was wanted from outside since. Whoever is asked need
// remember nothing.
func (c *Conductor) stored(ev *lifecycle.Event) *lifecycle.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &lifecycle.Event{Kind: ev.Kind, Pod: ev.Pod, Container: ev.Container, Requested: ev.Requested}
	if p := c.state.Pod(ev.Pod.ID); p != nil && ev.Kind != lifecycle.RunPodSandbox {
		out.Pod = p.Pod
	}
	if ev.Container == nil {
		return out
	}
	n := *ev.Container
	if _, stamped := n.Annotations[RecordKey]; stamped {
		n.Annotations = maps.Clone(n.Annotations)
		delete(n.Annotations, RecordKey)
	}
	if known := c.state.Container(n.ID); known != nil && ev.Kind != lifecycle.CreateContainer {
		asked := engine.Updated(known.Pristine, ev.Requested)
		n.Resources.CPU, n.Resources.Memory.Limit, n.Resources.Hugepages = asked.CPU, asked.Memory.Limit, asked.Hugepages
		for _, v := range engine.Standing(known.Outside, ev.Requested) {
			lay(&n, v)
		}
	}
	out.Container = &n
	return out
}

// lay puts a value into a container.
func lay(c *lifecycle.Container, v lifecycle.Value) {
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
		r.Unified = with(r.Unified, v.Key, v.Text)
	case lifecycle.Annotation:
		c.Annotations = with(c.Annotations, v.Key, v.Text)
	case lifecycle.Env:
		c.Env = slices.DeleteFunc(slices.Clone(c.Env), func(e string) bool { return strings.HasPrefix(e, v.Key+"=") })
		if !v.Gone {
			c.Env = append(c.Env, v.Key+"="+v.Text)
		}
	}
}

func with(m map[string]string, key, value string) map[string]string {
	n := maps.Clone(m)
	if n == nil {
		n = map[string]string{}
	}
	n[key] = value
	return n
}

// overlay lays over an event's pods what was wanted of them from outside. Pods
// of the event are replaced, not changed.
func (c *Conductor) overlay(ev *lifecycle.Event) {
	ev.Pod = over(ev.Pod, c.checkpoint)
	for i := range ev.Pods {
		ev.Pods[i] = over(ev.Pods[i], c.checkpoint)
	}
}

// over returns a pod with what was wanted of it from outside.
func over(p *lifecycle.Pod, cp *record.Checkpoint) *lifecycle.Pod {
	if p == nil {
		return nil
	}
	o, said := cp.Overlay(p.ID)
	if !said {
		return p
	}
	n := *p
	n.Labels, n.Annotations = merged(n.Labels, o.Labels), merged(n.Annotations, o.Annotations)
	return &n
}

// merged returns a map with the entries of another laid over it, but for records,
// which are the agent's own.
func merged(have, more map[string]string) map[string]string {
	if len(more) == 0 {
		return have
	}
	n := make(map[string]string, len(have)+len(more))
	maps.Copy(n, have)
	for k, v := range more {
		if k != intent.RecordKey {
			n[k] = v
		}
	}
	return n
}
