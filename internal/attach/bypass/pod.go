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
	started                           // the runtime has reported the container's start
)

// pendingChecks are the checks that a pod's worker must do.
type pendingChecks struct {
	sandbox bool
	ctrs    map[string]reasons // the reasons for each container, by its id
	order   []string           // container ids, in the order of their first hint
}

func (h pendingChecks) empty() bool { return !h.sandbox && len(h.ctrs) == 0 }

// add adds a hint about a container.
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
	// Used only by its worker:
	reported       *lifecycle.Pod
	stopped        bool
	dropped        bool // the session reports nothing more about it
	ctrs           map[string]*ctr
	failedAttempts map[string]int // failed requests to the runtime, by container id; "" is for the sandbox
	// Guarded by index.mu:
	inbox      pendingChecks
	busy       bool
	unreported bool            // not reported yet, or the runtime cannot describe it
	runs       map[string]bool // ids of running containers
}

// ctr is a container, and what this session has reported about it. Only the pod's worker uses the fields that no
// lock guards.
type ctr struct {
	id                string
	reported          *lifecycle.Container
	dir               string        // directory of its cgroup; "" if it is unknown
	running           bool          // the runtime reports it as running, and we have reconciled it since
	startWatch        chan struct{} // closing it ends the watch of the container's start; nil before that watch
	pollsSinceRemoval int           // number of polls since its cgroup was removed

	reporting sync.Mutex // held during reports; guards the fields about reports that must not come twice
	started   bool       // StartContainer was reported
	ended     bool

	// Guarded by session.copies:
	copySeen, copyWritten storedCopy
	inStatus              bool // the container's plain status contains its resources
	neverReported         bool // the runtime has never reported the container's resources
}

// indexEntry is a container in the index.
type indexEntry struct {
	p *pod
	c *ctr
}

func newPod(id string) *pod {
	return &pod{id: id, ctrs: map[string]*ctr{}, runs: map[string]bool{}, unreported: true}
}

// newCtr makes a container from the runtime's description. dir is its cgroup; "" if
// none was found.
func newCtr(d criclient.Container, dir string) *ctr {
	if d.StateUnknown && dir == "" { // containerd was killed during the start; without a cgroup no process runs
		d.State, d.Undescribed = lifecycle.StateUnknown, ""
	}
	c := &ctr{
		id: d.ID, reported: d.Container, neverReported: d.Undescribed != "", running: d.State == lifecycle.StateRunning,
		ended: d.State == lifecycle.StateStopped, copySeen: newStoredCopy(&d.Resources), inStatus: d.InStatus != nil,
	}
	if c.inStatus {
		c.copySeen = newStoredCopy(d.InStatus)
	}
	if d.CgroupsPath == "" && dir != "" {
		d.CgroupsPath = "/" + dir
	}
	return c
}

func (p *pod) dir() (string, bool) {
	dir, err := cgroup.PodPath(p.reported.CgroupParent)
	return dir, err == nil
}

func sortedIDs[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// hint adds a hint about what a pod's worker must check, and starts a worker if there is none.
func (s *session) hint(podID, id string, w reasons) {
	if s.ctx.Err() != nil {
		return
	}
	if p := s.index.addHint(podID, id, w); p != nil {
		s.tasks.run(func() { s.processHints(p) })
	}
}

func (s *session) hintPod(podID string) { s.hint(podID, "", 0) }

// hintContainer adds a hint about a container that was reported. The pod of any other container is unknown, and the
// next lists report that container.
func (s *session) hintContainer(id string, w reasons) {
	if k, ok := s.index.byContainerID(id); ok {
		s.hint(k.p.id, id, w)
	}
}

// processHints checks all hints about one pod.
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

// maxAttempts bounds how often a failed request to the runtime is repeated.
const maxAttempts = 5

// check processes hints. It repeats a failed request at most maxAttempts times. After that it reports the object
// from its list entry, and the next comparison of lists asks again.
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

// checkPod returns the hints that failed, and why. A container that the runtime cannot describe does not delay the
// other ones.
func (s *session) checkPod(p *pod, h pendingChecks) (unfinished pendingChecks, err error) {
	switch {
	case p.dropped:
		return unfinished, nil // these hints are older than the report of the pod's end
	case p.reported == nil:
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

// addPod reads a pod that this session did not report yet, and reports it.
func (s *session) addPod(p *pod) (ok bool, err error) {
	now, err := s.c.Pod(s.ctx, p.id)
	if criclient.NotFound(err) {
		s.drop(p)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.reportPod(p, now)
	return true, nil
}

// reportPod reports a pod in its current state.
func (s *session) reportPod(p *pod, now *lifecycle.Pod) {
	for _, id := range sortedIDs(p.ctrs) { // the goroutine that watches a container's start may report at the same time
		c := p.ctrs[id]
		c.reporting.Lock()
		defer c.reporting.Unlock()
	}
	p.reported = now
	s.index.mu.Lock()
	p.unreported = now.Undescribed != ""
	s.index.mu.Unlock()
	s.report(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: now})
	if dir, ok := p.dir(); ok {
		select {
		case s.podDirs <- dir:
		case <-s.ctx.Done():
		}
	}
}

// drop forgets a pod that the runtime no longer has.
func (s *session) drop(p *pod) {
	p.dropped = true
	s.index.drop(p)
}

// checkSandbox reads the state of a known pod, and reports its end.
func (s *session) checkSandbox(p *pod) (done bool, err error) {
	if p.reported.Undescribed != "" {
		if err := s.rereadPod(p); err != nil {
			return false, err
		}
	}
	ready, err := s.c.Ready(s.ctx, p.id)
	switch {
	case criclient.NotFound(err):
		s.endPod(p)
		for _, id := range sortedIDs(p.ctrs) {
			s.report(lifecycle.Event{Kind: lifecycle.RemoveContainer, Pod: p.reported, Container: p.ctrs[id].reported})
		}
		s.drop(p)
		s.report(lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: p.reported})
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
		s.end(p, p.ctrs[id])
	}
	if !p.stopped {
		p.stopped = true
		s.report(lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: p.reported})
	}
}

// addToIndex adds a container to the index, with the directory of its cgroup if that is known.
func (s *session) addToIndex(p *pod, c *ctr) {
	dir, err := cgroup.Path(p.reported.CgroupParent, c.reported.CgroupsPath)
	if err == nil {
		c.dir = dir
	} else {
		s.a.o.Log.Warn("a container's cgroup is unknown; the agent does not write its values", logkey.Container, c.reported.Name, logkey.Pod, p.reported.Name, logkey.Err,
			fmt.Errorf("container %s: %w", c.id, err))
	}
	s.index.add(p, c)
}
