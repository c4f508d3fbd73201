package bypass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// checkContainer brings what was reported of a container in line with what the
// runtime says of it now.
func (s *session) checkContainer(p *pod, id string, w why) error {
	c := p.ctrs[id]
	if c == nil {
		return s.meetContainer(p, id)
	}
	if w&runs != 0 {
		s.nowRunning(p, c)
	}
	if c.reported.Undescribed != "" && p.reported.Undescribed == "" {
		if err := s.reread(p, c); err != nil {
			return err
		}
	}
	if w&(askStatus|cgroupGone) != 0 {
		if gone, err := s.checkStatus(p, c, w); gone || err != nil {
			return err
		}
	}
	if w&cgroupMade != 0 && c.waiting == nil && !c.running && !c.hasEnded() {
		s.begin(p, c)
	}
	return nil
}

// meetContainer asks about a container not reported yet, and reports it. One that has
// ended already is never reported.
func (s *session) meetContainer(p *pod, id string) error {
	found, err := s.c.Container(s.ctx, id, p.id)
	if criclient.Gone(err) || p.stopped {
		return nil
	}
	if err != nil {
		return err
	}
	if c := newCtr(found, s.index.foundDir(id)); !c.hasEnded() {
		s.takeIn(p, c)
	}
	return nil
}

// takeIn reports a container that was not reported yet.
func (s *session) takeIn(p *pod, c *ctr) {
	if c.reported.CgroupsPath == "" {
		return // of a runtime that does not report it; its cgroup will
	}
	p.ctrs[c.id] = c
	s.keep(p, c)
	s.report(lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: p.reported, Container: c.reported})
	switch {
	case c.running:
		s.reconcile(p, c)
	case c.dir != "" && s.a.o.Tree.Has(c.dir):
		s.begin(p, c)
	}
}

// reconcile has what is decided written to the kernel, whatever others wrote.
func (s *session) reconcile(p *pod, c *ctr) {
	c.reporting.Lock()
	defer c.reporting.Unlock()
	if c.ended {
		return
	}
	kind := lifecycle.PostUpdateContainer
	if !c.started {
		kind, c.started = lifecycle.StartContainer, true
	}
	s.report(lifecycle.Event{Kind: kind, Pod: p.reported, Container: c.reported})
}

// nowRunning takes in that the runtime says that a container runs. What it wrote
// for that is over: this reconciles it permanently.
func (s *session) nowRunning(p *pod, c *ctr) {
	if c.running || c.hasEnded() {
		return
	}
	c.running = true
	s.index.mu.Lock()
	p.runs[c.id] = true
	s.index.mu.Unlock()
	s.reconcile(p, c)
	c.endWatch()
}

func (c *ctr) hasEnded() bool {
	c.reporting.Lock()
	defer c.reporting.Unlock()
	return c.ended
}

// endWatch ends what begin began.
func (c *ctr) endWatch() {
	if c.waiting == nil {
		c.waiting = make(chan struct{})
	}
	select {
	case <-c.waiting:
	default:
		close(c.waiting)
	}
}

// checkStatus asks the runtime about a known container.
func (s *session) checkStatus(p *pod, c *ctr, w why) (gone bool, err error) {
	state, requested, err := s.status(c)
	switch {
	case criclient.Gone(err):
		s.end(p, c)
		delete(p.ctrs, c.id)
		s.index.forget(c)
		s.report(lifecycle.Event{Kind: lifecycle.RemoveContainer, Pod: p.reported, Container: c.reported})
		return true, nil
	case err != nil:
		return false, err
	case c.hasEnded():
		return false, nil
	}
	if requested != nil {
		s.report(lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: p.reported, Container: c.reported, Requested: requested})
	}
	switch state {
	case lifecycle.StateStopped:
		s.end(p, c)
	case lifecycle.StateRunning:
		s.nowRunning(p, c)
	}
	if w&cgroupGone != 0 && !c.hasEnded() {
		s.waitForEnd(p, c)
	}
	return false, nil
}

// maxVanish bounds how often a runtime is asked whether a container whose cgroup
// went has ended: it notes an exit a moment later. After that the lists show.
const maxVanish = 8

func (s *session) waitForEnd(p *pod, c *ctr) {
	if s.a.o.Tree.Has(c.dir) {
		c.vanish = 0
		return
	}
	if c.vanish++; c.vanish <= maxVanish {
		s.tasks.later(time.Duration(10<<c.vanish)*time.Millisecond, func() { s.hint(p.id, c.id, cgroupGone) })
	}
}

// resources asks for a container's state, and for what the runtime has stored of it; nil
// where it does not report.
func (s *session) resources(c *ctr) (lifecycle.State, *stored, error) {
	state, has, err := s.c.Stored(s.ctx, c.id, c.inStatus)
	if has == nil {
		return state, nil, err
	}
	now := storedOf(has)
	return state, &now, nil
}

// status asks for state and resources. It returns the resources where another client
// has changed them.
func (s *session) status(c *ctr) (lifecycle.State, *lifecycle.Resources, error) {
	s.copies.Lock()
	defer s.copies.Unlock()
	state, now, err := s.resources(c)
	if err != nil || now == nil {
		return state, nil, err
	}
	if c.blank { // what it was asked for before is not known
		c.blank, c.seen = false, *now
		return state, nil, nil
	}
	requested := asked(*now, c.seen, c.ours)
	c.seen = *now
	if requested != nil {
		c.ours.drop(requested)
	}
	return state, requested, nil
}

// end reports a container's end, once.
func (s *session) end(p *pod, c *ctr) {
	c.reporting.Lock()
	defer c.reporting.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	s.index.end(p, c)
	c.endWatch()
	s.report(lifecycle.Event{Kind: lifecycle.StopContainer, Pod: p.reported, Container: c.reported})
}

// errWiden refuses an update by which the runtime would write CPUs that the
// kernel has taken away from the container.
var errWiden = errors.New("the runtime would give back CPUs that the kernel has taken away")

// errAsked refuses an update that would overwrite what another client has put into
// the runtime's copy since it was read.
var errAsked = errors.New("another client has changed the runtime's copy meanwhile; the agent reads it first")

// update gives the runtime's copy of one container new values. The runtime
// writes them to the kernel too, with all else it has stored: CPUs that the
// kernel does not have must not be among them.
func (s *session) update(ctx context.Context, w conductor.Settings) error {
	k, ok := s.index.of(w.Container)
	c := k.c
	s.copies.Lock()
	defer s.copies.Unlock()
	if !ok {
		return fmt.Errorf("update container %s: the runtime does not have it", w.Container)
	}
	if _, now, err := s.resources(c); err == nil && now != nil && asked(*now, c.seen, c.ours) != nil {
		s.hint(k.p.id, c.id, askStatus)
		return fmt.Errorf("update container %s: %w", w.Container, errAsked)
	}
	w.Values = slices.DeleteFunc(slices.Clone(w.Values), func(v lifecycle.Value) bool { return s.a.takes(runtimes.Push, v) != "" })
	if len(w.Values) == 0 {
		return nil
	}
	next := c.seen
	if left := next.put(w.Values); len(left) > 0 {
		return fmt.Errorf("update container %s: the CRI has no field for %s", w.Container, left[0].Field)
	}
	if err := narrow(s.a.o.Tree, c, next[rowOf(lifecycle.CPUSetCPUs)].text); err != nil {
		return fmt.Errorf("update container %s: %w", w.Container, err)
	}
	c.ours.put(w.Values) // even of a call that fails halfway
	err := s.c.Update(ctx, w.Container, request(w.Values))
	if err == nil {
		c.seen.put(w.Values)
	}
	return err
}

// narrow reports whether all of a list is what the kernel has already.
func narrow(tree *cgroup.Tree, c *ctr, cpus string) error {
	if cpus == "" || c.dir == "" {
		return nil
	}
	text, err := tree.Read(c.dir, lifecycle.CPUSetCPUs, "")
	if cgroup.Gone(err) {
		return nil // not started: the runtime stores it, and nothing else
	}
	if err != nil {
		return err
	}
	has, err := cgroup.ParseIDs(text)
	if err != nil {
		return err
	}
	gets, err := cgroup.ParseIDs(cpus)
	if err != nil {
		return err
	}
	if !has.Contains(gets) && !has.Empty() {
		return fmt.Errorf("%w: %s, and it has %s", errWiden, cpus, text)
	}
	return nil
}
