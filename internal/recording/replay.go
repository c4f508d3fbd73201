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

// PolicyMaker makes the policy of a recorded node. It can use another configuration than the recorded one.
type PolicyMaker func(n *Node, m *topology.Machine) (engine.Policy, error)

// Options are the options of a replay.
type Options struct {
	// Policy makes the policy that decides the events again.
	Policy PolicyMaker
	// Recorded makes the policy of the recorded configuration. It is nil if the field Policy makes the same policy. If
	// Recorded is not nil, the replay also compares the decisions about containers that ran at the recording's start.
	Recorded PolicyMaker
}

// GCPercent is the garbage collector's target (debug.SetGCPercent) for a program that replays a recording and
// exits. Reading lines makes much garbage. With Go's default of 100, garbage collection takes a fifth of the replay.
const GCPercent = 400

// Replay decides the events of a recording again and compares the decisions with the recorded ones. It returns an
// error with the line number if the recording is not valid. It also returns errors of Options.Policy.
func Replay(in io.Reader, o Options) (report Report, err error) {
	defer func() { // the engine panics for an inconsistent state, which an edited file may have
		if p := recover(); p != nil {
			err = fmt.Errorf("the recording contradicts itself: %v", p)
		}
	}()
	lines := bufio.NewReaderSize(in, 1<<20)
	text, err := lines.ReadBytes('\n')
	switch {
	case errors.Is(err, io.EOF) && len(text) == 0:
		return Report{}, errors.New("the file is empty: 'trimtab events --record FILE' writes a recording")
	case err != nil && !errors.Is(err, io.EOF):
		return Report{}, fmt.Errorf("line 1: %w", err)
	}
	var h Header
	if err := json.Unmarshal(text, &h); err != nil {
		return Report{}, fmt.Errorf("line 1: the file is not a recording: %w", jsonwords.Error(err))
	}
	if h.APIVersion != APIVersion || h.Kind != KindHeader || h.State == nil {
		return Report{}, fmt.Errorf("line 1: the file is not a recording: it has apiVersion %q and kind %q, want %q and %q with a state", h.APIVersion, h.Kind, APIVersion, KindHeader)
	}
	r := replay{policy: o.Policy, recordedDecisions: map[string]OwnerDecision{}, encoder: encoder{}}
	r.report.Version, r.report.Time, r.report.WithoutEnv = h.Version, h.Time, h.WithoutEnv
	if err := r.restoreState(&h, o.Recorded); err != nil {
		return Report{}, err
	}
	done := make(chan struct{})
	defer close(done)
	for d := range readLines(lines, done) {
		if d.err != nil {
			return r.report, fmt.Errorf("line %d: %w", d.number, d.err)
		}
		if err := r.replayEvent(d.line); err != nil {
			return r.report, fmt.Errorf("line %d: %w", d.number, err)
		}
	}
	return r.report, nil
}

// numberedLine is a line of the recording, or the error of reading it, with the line number.
type numberedLine struct {
	number int
	line   *Line
	err    error
}

// readLines reads lines in a goroutine that ends at the latest when done is closed. It ignores an incomplete last
// line, which an interrupted recording has.
func readLines(in *bufio.Reader, done <-chan struct{}) <-chan numberedLine {
	out := make(chan numberedLine, 256)
	go func() {
		defer close(out)
		for n := 2; ; n++ {
			text, err := in.ReadBytes('\n')
			if errors.Is(err, io.EOF) {
				return
			}
			next := numberedLine{number: n, line: &Line{}, err: err}
			if err == nil {
				next.err = jsonwords.Error(json.Unmarshal(text, next.line))
			}
			if next.err == nil && next.line.Kind != KindEvent {
				next.err = fmt.Errorf("the line has kind %q, want %q", next.line.Kind, KindEvent)
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

// replay is the state of a running replay.
type replay struct {
	policy  PolicyMaker
	encoder encoder
	state   *engine.State
	report  Report
	// recordedDecisions has the last recorded decision about each container and pod, by id.
	recordedDecisions map[string]OwnerDecision
	// differenceIndex has the index of each difference in report.Differences, by owner and setting.
	differenceIndex map[[2]string]int
}

// restoreState restores the state of the recording's first line with the replay's policy. If this policy is not the
// recorded policy, restoreState also compares the decisions of the two policies.
func (r *replay) restoreState(h *Header, recorded PolicyMaker) error {
	m, err := topology.Build(h.Node.Machine)
	if err != nil {
		return fmt.Errorf("line 1: the node's machine is not valid: %w", err)
	}
	p, err := r.policy(&h.Node, m)
	if err != nil {
		return err
	}
	r.differenceIndex = map[[2]string]int{}
	first := p
	if recorded != nil {
		// The state must be restored with the recorded policy, because this policy chose the pools of the running
		// containers. If this version cannot read the recorded configuration, some differences at the start are not
		// reported.
		if was, err := recorded(&h.Node, m); err == nil {
			first = was
		}
	}
	r.state = engine.Restore(m, first, h.State)
	for _, id := range r.state.Containers() {
		r.recordedDecisions[id], _ = containerDecision(r.state, id)
	}
	for _, id := range r.state.Pods() {
		r.recordedDecisions[id], _ = podDecision(r.state, id)
	}
	if recorded == nil {
		return nil
	}
	r.state.Reconfigure(p)
	for id, was := range r.recordedDecisions {
		if now, ok := r.currentDecision(id); ok {
			r.compare(0, "", was, now)
		}
	}
	return nil
}

// currentDecision returns the current decision about a container or pod.
func (r *replay) currentDecision(id string) (OwnerDecision, bool) {
	if d, ok := containerDecision(r.state, id); ok {
		return d, true
	}
	return podDecision(r.state, id)
}

// replayEvent decides one event again and compares the decisions.
func (r *replay) replayEvent(l *Line) error {
	r.report.Lost += l.Lost
	ev, f := &l.Event, l.Facts.engineFacts(r.state, &l.Same)
	if ev.Pod != nil && l.Same.Resources {
		if known := r.state.Pod(ev.Pod.ID); known != nil {
			ev.Pod.Resources = known.Pod.Resources
		}
	}
	if ev.Kind == lifecycle.Configure {
		if err := r.addNodeFacts(l, &f); err != nil {
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
		r.setRecorded(&d) // d equals the recorded decision
		return nil
	}
	r.report.Differing++
	var was Decision
	if err := json.Unmarshal(l.Decision, &was); err != nil {
		return fmt.Errorf("the recorded decision is not valid: %w", err)
	}
	r.addDifferences(l, &was, &d)
	return nil
}

// addNodeFacts adds the policy and the machine to the facts of a Configure event.
func (r *replay) addNodeFacts(l *Line, f *engine.Facts) error {
	if l.Node == nil {
		return errors.New("the Configure event has no node, which every Configure event needs")
	}
	m, err := topology.Build(l.Node.Machine)
	if err != nil {
		return fmt.Errorf("the node's machine is not valid: %w", err)
	}
	p, err := r.policy(l.Node, m)
	if err != nil {
		return err
	}
	f.Policy, f.Machine = &p, m
	return nil
}

// setRecorded stores a recorded decision in recordedDecisions.
func (r *replay) setRecorded(d *Decision) {
	for _, all := range [][]OwnerDecision{d.Containers, d.Pods} {
		for _, one := range all {
			r.recordedDecisions[one.ID] = one
		}
	}
	for _, id := range d.Gone {
		delete(r.recordedDecisions, id)
	}
}

// addDifferences adds the differences between two decisions about an event to the report.
func (r *replay) addDifferences(l *Line, was, now *Decision) {
	kind, whose := l.Event.Kind.String(), ""
	if l.Event.Pod != nil {
		whose = l.Event.Pod.Namespace + "/" + l.Event.Pod.Name
	}
	if l.Event.Container != nil {
		whose += "/" + l.Event.Container.Name
	}
	if was.Rejected != now.Rejected {
		r.addDifference(Difference{Seq: l.Seq, Event: kind, Owner: whose, Setting: "refusal", Recorded: was.Rejected, Replayed: now.Rejected})
	}
	before, after := poolCPUs(was.Pools), poolCPUs(now.Pools)
	names := maps.Clone(before)
	maps.Copy(names, after)
	for pool := range names {
		if before[pool] != after[pool] {
			r.addDifference(Difference{Seq: l.Seq, Event: kind, Owner: "pool " + pool, Setting: "CPUs", Recorded: before[pool], Replayed: after[pool]})
		}
	}
	ids := map[string]bool{}
	for _, all := range [][]OwnerDecision{was.Containers, was.Pods, now.Containers, now.Pods} {
		for _, one := range all {
			ids[one.ID] = true
		}
	}
	r.setRecorded(was)
	for id := range ids {
		recorded, known := r.recordedDecisions[id]
		replayed, still := r.currentDecision(id)
		if known && still {
			r.compare(l.Seq, kind, recorded, replayed)
		}
	}
}

// poolCPUs returns the new CPUs of changed pools, by pool name. If some containers of a pool may use only a part of the
// pool's CPUs, the text for this pool has several lists of CPUs.
func poolCPUs(all []PoolChange) map[string]string {
	out := map[string]string{}
	for _, p := range all {
		if out[p.Pool] != "" {
			out[p.Pool] += "; "
		}
		out[p.Pool] += p.After
	}
	return out
}
