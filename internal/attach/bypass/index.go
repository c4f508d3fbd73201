package bypass

import (
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/attach/criclient"
)

// index stores the known pods and containers by id. Its mutex also guards some fields of pod.
type index struct {
	mu         sync.Mutex
	pods       map[string]*pod
	containers map[string]indexedContainer // by container id
	byDir      map[string]string           // container ids, by the directory of the cgroup
	resolving  map[string]string           // by id: the directories of cgroups whose container is not known yet
	pollQueue  []string                    // ids of the containers that this round must still poll; the last is next
	polledAt   time.Time                   // when pollQueue was last filled
}

func newIndex() index {
	return index{pods: map[string]*pod{}, containers: map[string]indexedContainer{}, byDir: map[string]string{}, resolving: map[string]string{}}
}

func (x *index) isPod(id string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.pods[id] != nil
}

// byContainerID returns the container with this id.
func (x *index) byContainerID(id string) (indexedContainer, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k, ok := x.containers[id]
	return k, ok
}

// byCgroupDir returns the container whose cgroup is the directory.
func (x *index) byCgroupDir(dir string) (id string, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id, ok = x.byDir[dir]
	return id, ok
}

// addHint adds a hint for a pod's worker. The hint makes the worker check the container with this id, or the sandbox if
// id is "". If no worker runs for the pod, addHint returns the pod, and the caller must start a worker. Otherwise it
// returns nil.
func (x *index) addHint(podID, id string, w reasons) *pod {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.pods[podID]
	if p == nil {
		p = newPod(podID)
		x.pods[podID] = p
	}
	if id == "" {
		p.pending.sandbox = true
	} else {
		p.pending.add(id, w)
	}
	if p.workerRuns {
		return nil
	}
	p.workerRuns = true
	return p
}

// takeHints removes a pod's hints and returns them. If there are no hints, takeHints also notes that no worker runs for
// the pod any more.
func (x *index) takeHints(p *pod) pendingChecks {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := p.pending
	p.pending, p.workerRuns = pendingChecks{}, !h.empty()
	return h
}

// addContainer adds a container to the index.
func (x *index) addContainer(p *pod, c *ctr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.containers[c.id] = indexedContainer{p, c}
	if c.dir != "" {
		x.byDir[c.dir] = c.id
	}
	if c.running {
		p.runningIDs[c.id] = true
	}
}

// noteEnd notes that a container has ended. The container stays in the index until the runtime has removed it.
func (x *index) noteEnd(p *pod, c *ctr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removeContainerLocked(c)
	delete(p.runningIDs, c.id)
	x.containers[c.id] = indexedContainer{p, c}
}

func (x *index) removeContainer(c *ctr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removeContainerLocked(c)
}

func (x *index) removeContainerLocked(c *ctr) {
	delete(x.containers, c.id)
	if x.byDir[c.dir] == c.id {
		delete(x.byDir, c.dir)
	}
}

// removePod removes a pod and its containers.
func (x *index) removePod(p *pod) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pods[p.id] == p {
		delete(x.pods, p.id)
	}
	for _, c := range p.ctrs {
		x.removeContainerLocked(c)
	}
}

// noteCgroup notes that a cgroup exists whose name contains this id. If the id belongs to a known container, podID is
// the id of the container's pod; otherwise podID is "". ask means that the caller must ask the runtime which container
// the cgroup belongs to.
func (x *index) noteCgroup(id, dir string) (podID string, ask bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k, known := x.containers[id]; known {
		return k.pod.id, false
	}
	if x.pods[id] != nil || x.resolving[id] != "" {
		return "", false
	}
	if len(x.resolving) < maxResolving {
		x.resolving[id] = dir
	}
	return "", true
}

// resolvingDir returns the directory of the cgroup whose name contains this id, while the cgroup's container is
// unknown. Otherwise it returns "".
func (x *index) resolvingDir(id string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.resolving[id]
}

// endResolving removes from the index the note that the session searches the container of a new cgroup. noteCgroup has
// added this note.
func (x *index) endResolving(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.resolving, id)
}

// nextToPoll returns the id of the container to poll now, or "" if there is none. It returns each container once per
// round. A new round begins when nextToPoll has returned all containers, but not before roundInterval has passed since
// the last round began.
func (x *index) nextToPoll(roundInterval time.Duration) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.pollQueue) == 0 {
		if time.Since(x.polledAt) < roundInterval {
			return ""
		}
		x.polledAt = time.Now()
		for id := range x.containers {
			x.pollQueue = append(x.pollQueue, id)
		}
	}
	n := len(x.pollQueue)
	if n == 0 {
		return ""
	}
	id := x.pollQueue[n-1]
	x.pollQueue = x.pollQueue[:n-1]
	return id
}

// compareLists compares the runtime's lists with the index. ask has the ids of the pods that the session must check
// with the runtime. differ has the containers whose list entries differ from the index.
func (x *index) compareLists(pods, ctrs []criclient.ListItem) (ask []string, differ []criclient.ListItem) {
	x.mu.Lock()
	defer x.mu.Unlock()
	ready := map[string]bool{}
	for _, l := range pods {
		if l.State != criclient.StateReady {
			continue
		}
		ready[l.ID] = true
		if p := x.pods[l.ID]; p == nil || p.needsRead {
			ask = append(ask, l.ID)
		}
	}
	for id := range x.pods {
		if !ready[id] {
			ask = append(ask, id)
		}
	}
	live := map[string]bool{}
	for _, l := range ctrs {
		if l.State == criclient.StateExited {
			continue
		}
		live[l.ID] = true
		if k, known := x.containers[l.ID]; !known || l.State == criclient.StateRunning && !k.pod.runningIDs[l.ID] {
			differ = append(differ, l)
		}
	}
	for id, k := range x.containers {
		if !live[id] {
			differ = append(differ, criclient.ListItem{ID: id, Pod: k.pod.id})
		}
	}
	return ask, differ
}
