package recording

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/jsonwords"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// PolicyMaker makes the policy of a node. It may use another configuration than the recorded one.
type PolicyMaker func(n *Node, m *topology.Machine) (engine.Policy, error)

// Options say how to replay a recording.
type Options struct {
	Policy PolicyMaker
	// Recorded makes the policy of the recorded configuration, if Policy uses another one; else nil. The replay then
	// first decides again about everything that ran when the recording began.
	Recorded PolicyMaker
}

// GCPercent is the garbage collector's target (debug.SetGCPercent) for a program that
// replays a recording and ends. The state is small, and reading lines leaves much garbage:
// with Go's default of 100, collecting it takes a fifth of the time.
const GCPercent = 400

// Replay decides a recording's events again and compares the decisions with the recorded ones. Errors are about the
// recording, each with its line, or come from Options.Policy.
func Replay(in io.Reader, o Options) (report Report, err error) {
	defer func() { // a file may have a state that no agent can have
		if p := recover(); p != nil {
			err = fmt.Errorf("the recording contradicts itself: %v", p)
		}
	}()
	lines := bufio.NewReaderSize(in, 1<<20)
	text, err := lines.ReadBytes('\n')
	switch {
	case errors.Is(err, io.EOF) && len(text) == 0:
		return Report{}, errors.New("it is empty: 'trimtab events --record FILE' writes a recording")
	case err != nil && !errors.Is(err, io.EOF):
		return Report{}, fmt.Errorf("line 1: %w", err)
	}
	var h Header
	if err := json.Unmarshal(text, &h); err != nil {
		return Report{}, fmt.Errorf("line 1: it is no recording: %w", jsonwords.Error(err))
	}
	if h.APIVersion != APIVersion || h.Kind != KindHeader || h.State == nil {
		return Report{}, fmt.Errorf("line 1: apiVersion %q and kind %q are not %q and %q", h.APIVersion, h.Kind, APIVersion, KindHeader)
	}
	r := replay{policy: o.Policy, said: map[string]Decided{}, encoder: encoder{}}
	r.report.Version, r.report.Time, r.report.WithoutEnv = h.Version, h.Time, h.WithoutEnv
	if err := r.begin(&h, o.Recorded); err != nil {
		return Report{}, err
	}
	done := make(chan struct{})
	defer close(done)
	for d := range decoded(lines, done) {
		if d.err != nil {
			return r.report, fmt.Errorf("line %d: %w", d.number, d.err)
		}
		if err := r.event(d.line); err != nil {
			return r.report, fmt.Errorf("line %d: %w", d.number, err)
		}
	}
	return r.report, nil
}

// read is a line that was read.
type read struct {
	number int
	line   *Line
	err    error
}

// decoded reads lines in advance, until done is closed. It leaves out an incomplete last line, which an interrupted
// recording may have.
func decoded(in *bufio.Reader, done <-chan struct{}) <-chan read {
	out := make(chan read, 256)
	go func() {
		defer close(out)
		for n := 2; ; n++ {
			text, err := in.ReadBytes('\n')
			if errors.Is(err, io.EOF) {
				return
			}
			next := read{number: n, line: &Line{}, err: err}
			if err == nil {
				next.err = jsonwords.Error(json.Unmarshal(text, next.line))
			}
			if next.err == nil && next.line.Kind != KindEvent {
				next.err = fmt.Errorf("kind %q is not %q", next.line.Kind, KindEvent)
			}
			select {
			case out <- next:
			case <-done:
				return
			}
			if next.err != nil {
				return
			}
		}
	}()
	return out
}

// replay is a recording during its replay.
type replay struct {
	policy  PolicyMaker
	encoder encoder
	state   *engine.State
	report  Report
	// said are the recorded decisions that differ or may differ, by id of the container or pod.
	said map[string]Decided
	// rows are the report's differences, by owner and setting.
	rows map[[2]string]int
}

func (r *replay) begin(h *Header, recorded PolicyMaker) error {
	m, err := topology.Build(h.Node.Machine)
	if err != nil {
		return fmt.Errorf("line 1: the node: %w", err)
	}
	p, err := r.policy(&h.Node, m)
	if err != nil {
		return err
	}
	r.rows = map[[2]string]int{}
	first := p
	if recorded != nil {
		// What ran has the CPUs of the pools of that time. A version that no longer reads the recorded configuration
		// shows no differences of these at the start.
		if was, err := recorded(&h.Node, m); err == nil {
			first = was
		}
	}
	r.state = engine.Restore(m, first, h.State)
	for _, id := range r.state.Containers() {
		r.said[id], _ = containerOf(r.state, id)
	}
	for _, id := range r.state.Pods() {
		r.said[id], _ = podOf(r.state, id)
	}
	if recorded == nil {
		return nil
	}
	r.state.Reconfigure(p)
	for id, was := range r.said {
		if now, ok := r.now(id); ok {
			r.compare(0, "", was, now)
		}
	}
	return nil
}

// now returns the current decision about a container or pod.
func (r *replay) now(id string) (Decided, bool) {
	if d, ok := containerOf(r.state, id); ok {
		return d, true
	}
	return podOf(r.state, id)
}

// event decides one event again.
func (r *replay) event(l *Line) error {
	r.report.Lost += l.Lost
	ev, f := &l.Event, l.Facts.of(r.state, &l.Same)
	if ev.Pod != nil && l.Same.Resources {
		if known := r.state.Pod(ev.Pod.ID); known != nil {
			ev.Pod.Resources = known.Pod.Resources
		}
	}
	if ev.Kind == lifecycle.Configure {
		if err := r.configure(l, &f); err != nil {
			return err
		}
	}
	plan := engine.Decide(r.state, ev, f)
	if plan.Reject == "" {
		r.state.Commit(plan)
	}
	d := DecisionOf(r.state, plan)
	text, err := r.encoder.encode(&d)
	if err != nil {
		return err
	}
	r.report.Events++
	if bytes.Equal(text, l.Decision) {
		r.note(&d) // this is the recorded decision
		return nil
	}
	r.report.Differing++
	var was Decision
	if err := json.Unmarshal(l.Decision, &was); err != nil {
		return fmt.Errorf("the decision: %w", err)
	}
	r.differ(l, &was, &d)
	return nil
}

// configure adds policy and machine to a Configure event.
func (r *replay) configure(l *Line, f *engine.Facts) error {
	if l.Node == nil {
		return errors.New("a Configure without its node")
	}
	m, err := topology.Build(l.Node.Machine)
	if err != nil {
		return fmt.Errorf("the node: %w", err)
	}
	p, err := r.policy(l.Node, m)
	if err != nil {
		return err
	}
	f.Policy, f.Machine = &p, m
	return nil
}

// note notes a recorded decision.
func (r *replay) note(d *Decision) {
	for _, all := range [][]Decided{d.Containers, d.Pods} {
		for _, one := range all {
			r.said[one.ID] = one
		}
	}
	for _, id := range d.Gone {
		delete(r.said, id)
	}
}

// differ adds the differences of an event to the report.
func (r *replay) differ(l *Line, was, now *Decision) {
	kind, whose := l.Event.Kind.String(), ""
	if l.Event.Pod != nil {
		whose = l.Event.Pod.Namespace + "/" + l.Event.Pod.Name
	}
	if l.Event.Container != nil {
		whose += "/" + l.Event.Container.Name
	}
	if was.Rejected != now.Rejected {
		r.row(Difference{Seq: l.Seq, Event: kind, Owner: whose, Setting: "refusal", Recorded: was.Rejected, Replayed: now.Rejected})
	}
	before, after := pools(was.Pools), pools(now.Pools)
	names := maps.Clone(before)
	maps.Copy(names, after)
	for pool := range names {
		if before[pool] != after[pool] {
			r.row(Difference{Seq: l.Seq, Event: kind, Owner: "pool " + pool, Setting: "CPUs", Recorded: before[pool], Replayed: after[pool]})
		}
	}
	ids := map[string]bool{}
	for _, all := range [][]Decided{was.Containers, was.Pods, now.Containers, now.Pods} {
		for _, one := range all {
			ids[one.ID] = true
		}
	}
	r.note(was)
	for id := range ids {
		recorded, known := r.said[id]
		replayed, still := r.now(id)
		if known && still {
			r.compare(l.Seq, kind, recorded, replayed)
		}
	}
}

// pools returns the CPUs of pools after a change, by name. A pool whose containers are confined in several ways has
// several lists.
func pools(all []PoolChange) map[string]string {
	out := map[string]string{}
	for _, p := range all {
		if out[p.Pool] != "" {
			out[p.Pool] += "; "
		}
		out[p.Pool] += p.After
	}
	return out
}
