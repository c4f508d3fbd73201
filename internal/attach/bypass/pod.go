package bypass

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// reasons are the reasons for a check of a container.
type reasons uint8

const (
	askStatus     reasons = 1 << iota // the container's status may have changed
	cgroupCreated                     // the container's cgroup was created
	cgroupRemoved                     // the container's cgroup was removed
	startEvent                        // the runtime has reported the container's start
)

// pendingChecks are the checks that a pod's worker goroutine must do. Each check comes from a hint that a pod or
// container may have changed. Hints are events, differences between the runtime's list and the index, and created or
// removed cgroups.
type pendingChecks struct {
	sandbox bool               // the sandbox must be checked
	ctrs    map[string]reasons // the reasons for each container, by its id
	order   []string           // the ids in ctrs, in the order in which their first hints came
}

func (h pendingChecks) empty() bool { return !h.sandbox && len(h.ctrs) == 0 }

// add adds a check of a container, or more reasons for a check that is already pending.
func (h *pendingChecks) add(id string, w reasons) {
	if h.ctrs == nil {
		h.ctrs = map[string]reasons{}
	}
	if _, waits := h.ctrs[id]; !waits {
		h.order = append(h.order, id)
	}
	h.ctrs[id] |= w
}

// pod is a sandbox, and what this session has reported about it.
type pod struct {
	id string
	// Only the pod's worker uses these fields:
	lastReported   *lifecycle.Pod
	stopped        bool // the end of the sandbox was reported
	dropped        bool // the runtime no longer has the pod, so the session reports nothing more about it
	ctrs           map[string]*ctr
	failedAttempts map[string]int // failed requests to the runtime, by container id; "" is for the sandbox
	// index.mu guards these fields:
	pending    pendingChecks
	workerRuns bool            // a goroutine handles the pending checks
	needsRead  bool            // the pod was not reported yet, or the runtime could not describe it
	runningIDs map[string]bool // ids of running containers
}

// ctr is a container, and what this session has reported about it. No lock guards the fields that only the pod's worker
// uses.
type ctr struct {
	id                string
	lastReported      *lifecycle.Container
	dir               string        // directory of the container's cgroup; "" if the directory is unknown
	running           bool          // the runtime has reported the container as running
	startWatch        chan struct{} // closing the channel ends the watch of the container's start; nil before that watch
	pollsSinceRemoval int           // number of polls since the container's cgroup was removed

	reporting     sync.Mutex // held during reports; guards the two fields below, and changes of lastReported
	startReported bool       // StartContainer was reported
	ended         bool       // StopContainer was reported

	// session.copiesMu guards these fields. copySeen has the resources that the runtime stores, as the session last read
	// or updated them. copyWritten has the values that the session last sent to the runtime.
	copySeen, copyWritten storedCopy
	resourcesInStatus     bool // the container's non-verbose status contains its resources
	resourcesUnknown      bool // the runtime has never reported the container's resources
}

// indexedContainer is a container in the index, with its pod.
type indexedContainer struct {
	pod *pod
	ctr *ctr
}

func newPod(id string) *pod {
	return &pod{id: id, ctrs: map[string]*ctr{}, runningIDs: map[string]bool{}, needsRead: true}
}

// newCtr makes a ctr from the runtime's description of a container. dir is the directory of the container's cgroup; ""
// if none was found.
func newCtr(d criclient.Container, dir string) *ctr {
	if d.StateUnknown && dir == "" { // containerd was killed during the container's start, and the container has no process
		d.State, d.Undescribed = lifecycle.StateUnknown, ""
	}
	c := &ctr{
		id: d.ID, lastReported: d.Container, resourcesUnknown: d.Undescribed != "", running: d.State == lifecycle.StateRunning,
		ended: d.State == lifecycle.StateStopped, copySeen: newStoredCopy(&d.Resources), resourcesInStatus: d.StatusResources != nil,
	}
	if c.resourcesInStatus {
		c.copySeen = newStoredCopy(d.StatusResources)
	}
	if d.CgroupsPath == "" && dir != "" {
		d.CgroupsPath = "/" + dir
	}
	return c
}

// dir returns the directory of the pod's cgroup. The bool is false if the runtime reports no valid path.
func (p *pod) dir() (string, bool) {
	dir, err := cgroup.PodPath(p.lastReported.CgroupParent)
	return dir, err == nil
}

func sortedIDs[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// hint makes the pod's worker check the container with this id, or the sandbox if id is "". It starts a worker if none
// runs for the pod.
func (s *session) hint(podID, id string, w reasons) {
	if s.ctx.Err() != nil {
		return
	}
	if p := s.index.addHint(podID, id, w); p != nil {
		s.tasks.run(func() { s.processHints(p) })
	}
}

// hintPod makes the pod's worker check the sandbox.
func (s *session) hintPod(podID string) { s.hint(podID, "", 0) }

// hintContainer makes a pod's worker check a container. If the index does not have the container, the pod is unknown,
// and hintContainer does nothing. The next list of the runtime shows such a container.
func (s *session) hintContainer(id string, w reasons) {
	if k, ok := s.index.byContainerID(id); ok {
		s.hint(k.pod.id, id, w)
	}
}

// processHints is the worker of one pod: it does the checks for all hints, until there are no more hints.
func (s *session) processHints(p *pod) {
	if s.slots.Acquire(s.ctx, 1) != nil {
		return
	}
	defer s.slots.Release(1)
	for {
		h := s.index.takeHints(p)
		if h.empty() || s.ctx.Err() != nil {
			return
		}
		s.recoverPanic("pod", func() { s.check(p, h) })
	}
}

// maxAttempts is how many times the session repeats a failed request about one pod or container.
const maxAttempts = 5

// check does the checks of one pod. It repeats a failed request to the runtime at most maxAttempts times. After that it
// reports the pod or container with only the fields of the runtime's list. The next comparison of lists asks again.
func (s *session) check(p *pod, h pendingChecks) {
	unfinished, err := s.checkPod(p, h)
	switch {
	case err == nil || s.ctx.Err() != nil:
	case criclient.ConnectionFailed(s.ctx, err):
		s.tasks.fail(err)
	default:
		again, givenUp, tries := p.splitRetries(unfinished)
		if tries > 0 {
			s.tasks.runAfter(time.Duration(tries*tries)*20*time.Millisecond, func() {
				if again.sandbox {
					s.hintPod(p.id)
				}
				for _, id := range again.order {
					s.hint(p.id, id, again.ctrs[id])
				}
			})
		}
		if !givenUp.empty() {
			s.reportFromLists(p, givenUp, err)
		}
	}
}

// checkPod does each check of one pod once. It returns the checks that failed, and the last error. If the runtime
// cannot describe a container, checkPod continues with the pod's other containers.
func (s *session) checkPod(p *pod, h pendingChecks) (unfinished pendingChecks, err error) {
	switch {
	case p.dropped:
		return unfinished, nil // the pod's end was reported, so these hints are obsolete
	case p.lastReported == nil:
		if ok, err := s.addPod(p); !ok || err != nil {
			return h, err
		}
	case h.sandbox:
		done, failed := s.checkSandbox(p)
		if done || criclient.ConnectionFailed(s.ctx, failed) {
			return h, failed
		}
		unfinished.sandbox, err = failed != nil, failed
	}
	if !unfinished.sandbox {
		delete(p.failedAttempts, "")
	}
	for _, id := range h.order {
		failed := s.checkContainer(p, id, h.ctrs[id])
		if failed == nil {
			delete(p.failedAttempts, id)
			continue
		}
		unfinished.add(id, h.ctrs[id])
		if err = failed; criclient.ConnectionFailed(s.ctx, failed) {
			break
		}
	}
	return unfinished, err
}

// addPod reads a pod that this session did not report yet, and reports it. ok is false if the runtime does not have the
// pod.
func (s *session) addPod(p *pod) (ok bool, err error) {
	now, err := s.c.Pod(s.ctx, p.id)
	if criclient.NotFound(err) {
		s.dropPod(p)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.reportPod(p, now)
	return true, nil
}

// reportPod reports a pod with the description that the runtime gives now.
func (s *session) reportPod(p *pod, now *lifecycle.Pod) {
	for _, id := range sortedIDs(p.ctrs) { // make the goroutines of watchStart wait, because they report p.lastReported
		c := p.ctrs[id]
		c.reporting.Lock()
		defer c.reporting.Unlock()
	}
	p.lastReported = now
	s.index.mu.Lock()
	p.needsRead = now.Undescribed != ""
	s.index.mu.Unlock()
	s.report(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: now})
	if dir, ok := p.dir(); ok {
		select {
		case s.podDirs <- dir:
		case <-s.ctx.Done():
		}
	}
}

// dropPod removes a pod from the index, because the runtime no longer has the pod.
func (s *session) dropPod(p *pod) {
	p.dropped = true
	s.index.removePod(p)
}

// checkSandbox reads the state of a known pod, and reports the pod's end if the pod has ended. done means that the
// runtime no longer has the pod.
func (s *session) checkSandbox(p *pod) (done bool, err error) {
	if p.lastReported.Undescribed != "" {
		if err := s.rereadPod(p); err != nil {
			return false, err
		}
	}
	ready, err := s.c.Ready(s.ctx, p.id)
	switch {
	case criclient.NotFound(err):
		s.endPod(p)
		for _, id := range sortedIDs(p.ctrs) {
			s.report(lifecycle.Event{Kind: lifecycle.RemoveContainer, Pod: p.lastReported, Container: p.ctrs[id].lastReported})
		}
		s.dropPod(p)
		s.report(lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: p.lastReported})
		return true, nil
	case err != nil:
		return false, err
	case !ready:
		s.endPod(p)
	}
	return false, nil
}

// endPod reports the end of a pod and of its containers.
func (s *session) endPod(p *pod) {
	for _, id := range sortedIDs(p.ctrs) {
		s.reportEnd(p, p.ctrs[id])
	}
	if !p.stopped {
		p.stopped = true
		s.report(lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: p.lastReported})
	}
}

// addToIndex adds a container to the index, with the directory of the container's cgroup if the directory is known.
func (s *session) addToIndex(p *pod, c *ctr) {
	dir, err := cgroup.Path(p.lastReported.CgroupParent, c.lastReported.CgroupsPath)
	if err == nil {
		c.dir = dir
	} else {
		s.a.o.Log.Warn("the agent does not know a container's cgroup, so it writes no values for the container", logkey.Container, c.lastReported.Name, logkey.Pod, p.lastReported.Name, logkey.Err,
			fmt.Errorf("container %s: %w", c.id, err))
	}
	s.index.addContainer(p, c)
}
