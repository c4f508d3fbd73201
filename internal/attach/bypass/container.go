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

// checkContainer reads the container's current state from the runtime. It reports what has changed since the session's
// last report to the agent. The reasons w determine what it reads; some reasons need no request to the runtime.
func (s *session) checkContainer(p *pod, id string, w reasons) error {
	c := p.ctrs[id]
	if c == nil {
		return s.addContainer(p, id)
	}
	if w&startEvent != 0 {
		s.confirmRunning(p, c)
	}
	if c.lastReported.Undescribed != "" && p.lastReported.Undescribed == "" {
		if err := s.rereadContainer(p, c); err != nil {
			return err
		}
	}
	if w&(askStatus|cgroupRemoved) != 0 {
		if gone, err := s.checkStatus(p, c, w); gone || err != nil {
			return err
		}
	}
	if w&cgroupCreated != 0 && c.startWatch == nil && !c.running && !c.hasEnded() {
		s.watchStart(p, c)
	}
	return nil
}

// addContainer reads a container that this session did not report yet, and reports the container unless it has already
// ended.
func (s *session) addContainer(p *pod, id string) error {
	found, err := s.c.Container(s.ctx, id, p.id)
	if criclient.NotFound(err) || p.stopped {
		return nil
	}
	if err != nil {
		return err
	}
	if c := newCtr(found, s.index.resolvingDir(id)); !c.hasEnded() {
		s.reportNew(p, c)
	}
	return nil
}

// reportNew reports a container that this session did not report yet.
func (s *session) reportNew(p *pod, c *ctr) {
	if c.lastReported.CgroupsPath == "" {
		return // the runtime does not report the cgroup's path; inotify shows the path when the cgroup is created
	}
	p.ctrs[c.id] = c
	s.addToIndex(p, c)
	s.report(lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: p.lastReported, Container: c.lastReported})
	switch {
	case c.running:
		s.reconcile(p, c)
	case c.dir != "" && s.a.o.Tree.Has(c.dir):
		s.watchStart(p, c)
	}
}

// reconcile reports an event after which the keeper (package keeper) writes the decided values to the container's
// cgroup again, in place of values that other programs wrote there.
func (s *session) reconcile(p *pod, c *ctr) {
	c.reporting.Lock()
	defer c.reporting.Unlock()
	if c.ended {
		return
	}
	kind := lifecycle.PostUpdateContainer
	if !c.startReported {
		kind, c.startReported = lifecycle.StartContainer, true
	}
	s.report(lifecycle.Event{Kind: kind, Pod: p.lastReported, Container: c.lastReported})
}

// confirmRunning notes that the runtime reports a container as running. It then makes the keeper write the decided
// values once more (see reconcile). It also ends the watch of the container's start (see watchStart), because during
// this start the runtime writes nothing more to the cgroup.
func (s *session) confirmRunning(p *pod, c *ctr) {
	if c.running || c.hasEnded() {
		return
	}
	c.running = true
	s.index.mu.Lock()
	p.runningIDs[c.id] = true
	s.index.mu.Unlock()
	s.reconcile(p, c)
	c.endWatch()
}

func (c *ctr) hasEnded() bool {
	c.reporting.Lock()
	defer c.reporting.Unlock()
	return c.ended
}

// endWatch ends the watch of the container's start. If no such watch has begun, endWatch prevents a later one.
func (c *ctr) endWatch() {
	if c.startWatch == nil {
		c.startWatch = make(chan struct{})
	}
	select {
	case <-c.startWatch:
	default:
		close(c.startWatch)
	}
}

// checkStatus reads the status of a known container and reports what has changed. gone means that the runtime no longer
// has the container.
func (s *session) checkStatus(p *pod, c *ctr, w reasons) (gone bool, err error) {
	state, requested, err := s.status(c)
	switch {
	case criclient.NotFound(err):
		s.reportEnd(p, c)
		delete(p.ctrs, c.id)
		s.index.removeContainer(c)
		s.report(lifecycle.Event{Kind: lifecycle.RemoveContainer, Pod: p.lastReported, Container: c.lastReported})
		return true, nil
	case err != nil:
		return false, err
	case c.hasEnded():
		return false, nil
	}
	if requested != nil {
		s.report(lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: p.lastReported, Container: c.lastReported, Requested: requested})
	}
	switch state {
	case lifecycle.StateStopped:
		s.reportEnd(p, c)
	case lifecycle.StateRunning:
		s.confirmRunning(p, c)
	}
	if w&cgroupRemoved != 0 && !c.hasEnded() {
		s.pollContainerEnd(p, c)
	}
	return false, nil
}

// maxExitPolls is how often the session asks the runtime whether a container has ended, after the container's cgroup
// was removed. The runtime reports the end a moment after the removal. If no poll finds the end, the next list shows
// it.
const maxExitPolls = 8

// pollContainerEnd checks a container again after a growing pause, at most maxExitPolls times, while the container's
// cgroup is missing.
func (s *session) pollContainerEnd(p *pod, c *ctr) {
	if s.a.o.Tree.Has(c.dir) {
		c.pollsSinceRemoval = 0
		return
	}
	if c.pollsSinceRemoval++; c.pollsSinceRemoval <= maxExitPolls {
		s.tasks.runAfter(time.Duration(10<<c.pollsSinceRemoval)*time.Millisecond, func() { s.hint(p.id, c.id, cgroupRemoved) })
	}
}

// resources reads a container's state and the resources that the runtime has stored for it. The resources are nil
// if the runtime does not report them.
func (s *session) resources(c *ctr) (lifecycle.State, *storedCopy, error) {
	state, has, err := s.c.StoredResources(s.ctx, c.id, c.resourcesInStatus)
	if has == nil {
		return state, nil, err
	}
	now := newStoredCopy(has)
	return state, &now, nil
}

// status reads a container's state. It also returns the resources that another CRI client, such as the kubelet, has
// changed since the last read, or nil if there are none.
func (s *session) status(c *ctr) (lifecycle.State, *lifecycle.Resources, error) {
	s.copiesMu.Lock()
	defer s.copiesMu.Unlock()
	state, now, err := s.resources(c)
	if err != nil || now == nil {
		return state, nil, err
	}
	if c.resourcesUnknown { // no earlier resources are known, so there is nothing to compare
		c.resourcesUnknown, c.copySeen = false, *now
		return state, nil, nil
	}
	requested := foreignChanges(*now, c.copySeen, c.copyWritten)
	c.copySeen = *now
	if requested != nil {
		c.copyWritten.clearChanged(requested)
	}
	return state, requested, nil
}

// reportEnd reports a container's end, unless the end was reported already.
func (s *session) reportEnd(p *pod, c *ctr) {
	c.reporting.Lock()
	defer c.reporting.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	s.index.noteEnd(p, c)
	c.endWatch()
	s.report(lifecycle.Event{Kind: lifecycle.StopContainer, Pod: p.lastReported, Container: c.lastReported})
}

// errReturnsCPUs is the error for an update that the agent does not send, because the runtime would write CPUs to the
// container's cgroup that the agent has taken from the container.
var errReturnsCPUs = errors.New("the update is not sent, because the runtime would give the container CPUs that the agent has taken away")

// errCopyChanged is the error for an update that the agent does not send, because another client has changed the
// runtime's stored copy since the agent last read the copy. The update could overwrite the other client's values.
var errCopyChanged = errors.New("another client has changed the resources that the runtime stores; the agent must first read them again")

// update writes values to the resources that the runtime stores for one container. The runtime then writes all stored
// resources to the kernel. The stored CPUs must therefore be CPUs that the container's cgroup still has.
func (s *session) update(ctx context.Context, w conductor.Settings) error {
	k, ok := s.index.byContainerID(w.Container)
	c := k.ctr
	s.copiesMu.Lock()
	defer s.copiesMu.Unlock()
	if !ok {
		return fmt.Errorf("update container %s: the runtime does not list the container", w.Container)
	}
	if _, now, err := s.resources(c); err == nil && now != nil && foreignChanges(*now, c.copySeen, c.copyWritten) != nil {
		s.hint(k.pod.id, c.id, askStatus)
		return fmt.Errorf("update container %s: %w", w.Container, errCopyChanged)
	}
	w.Values = slices.DeleteFunc(slices.Clone(w.Values), func(v lifecycle.Value) bool { return s.a.whyUnsupported(runtimes.AgentUpdate, v) != "" })
	if len(w.Values) == 0 {
		return nil
	}
	next := c.copySeen
	if unsupported := next.put(w.Values); len(unsupported) > 0 {
		return fmt.Errorf("update container %s: the CRI has no field for %s", w.Container, unsupported[0].Field)
	}
	if err := checkCPUs(s.a.o.Tree, c, next[copyFieldIndex(lifecycle.CPUSetCPUs)].Text); err != nil {
		return fmt.Errorf("update container %s: %w", w.Container, err)
	}
	c.copyWritten.put(w.Values) // before the call, because a call that fails may still change the runtime's copy
	err := s.c.Update(ctx, w.Container, updateRequest(w.Values))
	if err == nil {
		c.copySeen.put(w.Values)
	}
	return err
}

// checkCPUs returns an error if the CPU list cpus contains CPUs that the container's cgroup does not have.
func checkCPUs(tree *cgroup.Tree, c *ctr, cpus string) error {
	if cpus == "" || c.dir == "" {
		return nil
	}
	text, err := tree.Read(c.dir, lifecycle.CPUSetCPUs, "")
	if cgroup.IsNotExist(err) {
		return nil // the container has not started, so the runtime only stores the value
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
		return fmt.Errorf("%w: the update has CPUs %s, and the cgroup of the container has %s", errReturnsCPUs, cpus, text)
	}
	return nil
}
