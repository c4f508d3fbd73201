package bypass

import (
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/attach/criclient"
)

// index stores the known pods and containers by id. Its mutex also guards fields of pods.
type index struct {
	mu        sync.Mutex
	pods      map[string]*pod
	indexed   map[string]indexEntry // by container id
	byDir     map[string]string     // container ids, by the directory of the cgroup
	resolving map[string]string     // by id: the directories of cgroups whose container is not known yet
	pollQueue []string              // containers to poll, in this order
	polledAt  time.Time             // when pollQueue was last filled
}

func newIndex() index {
	return index{pods: map[string]*pod{}, indexed: map[string]indexEntry{}, byDir: map[string]string{}, resolving: map[string]string{}}
}

func (x *index) isPod(id string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.pods[id] != nil
}

// byContainerID returns the container with this id.
func (x *index) byContainerID(id string) (indexEntry, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k, ok := x.indexed[id]
	return k, ok
}

// byCgroupDir returns the container whose cgroup is the directory.
func (x *index) byCgroupDir(dir string) (id string, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id, ok = x.byDir[dir]
	return id, ok
}

// addHint adds a hint for a pod's worker. It returns the pod if no worker runs for it; the caller then starts one.
func (x *index) addHint(podID, id string, w reasons) *pod {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.pods[podID]
	if p == nil {
		p = newPod(podID)
		x.pods[podID] = p
	}
	if id == "" {
		p.inbox.sandbox = true
	} else {
		p.inbox.add(id, w)
	}
	if p.busy {
		return nil
	}
	p.busy = true
	return p
}

// takeHints removes a pod's hints and returns them. If there are none, it also notes that no worker runs for the
// pod any more.
func (x *index) takeHints(p *pod) pendingChecks {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := p.inbox
	p.inbox, p.busy = pendingChecks{}, !h.empty()
	return h
}

// add adds a container to the index.
func (x *index) add(p *pod, c *ctr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.indexed[c.id] = indexEntry{p, c}
	if c.dir != "" {
		x.byDir[c.dir] = c.id
	}
	if c.running {
		p.runs[c.id] = true
	}
}

// end notes that a container has ended. The container stays in the index until it is removed.
func (x *index) end(p *pod, c *ctr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forgetLocked(c)
	delete(p.runs, c.id)
	x.indexed[c.id] = indexEntry{p, c}
}

func (x *index) forget(c *ctr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forgetLocked(c)
}

func (x *index) forgetLocked(c *ctr) {
	delete(x.indexed, c.id)
	if x.byDir[c.dir] == c.id {
		delete(x.byDir, c.dir)
	}
}

// drop removes a pod and its containers.
func (x *index) drop(p *pod) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pods[p.id] == p {
		delete(x.pods, p.id)
	}
	for _, c := range p.ctrs {
		x.forgetLocked(c)
	}
}

// noteCgroup notes that a cgroup exists whose name contains this id. For a known container it returns the id of the
// pod, and "" otherwise. ask is true if the caller must ask the runtime which container the cgroup belongs to.
func (x *index) noteCgroup(id, dir string) (podID string, ask bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k, known := x.indexed[id]; known {
		return k.p.id, false
	}
	if x.pods[id] != nil || x.resolving[id] != "" {
		return "", false
	}
	if len(x.resolving) < maxResolving {
		x.resolving[id] = dir
	}
	return "", true
}

// resolvingDir returns the directory of the cgroup with this id, if its container is not known yet.
func (x *index) resolvingDir(id string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.resolving[id]
}

// endResolving ends the search for a container that noteCgroup started.
func (x *index) endResolving(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.resolving, id)
}

// nextToPoll returns the container to poll now, or "" if there is none. It returns each container once in a round. A
// new round begins when all containers were returned, and the duration apart has passed since the last round began.
func (x *index) nextToPoll(apart time.Duration) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.pollQueue) == 0 {
		if time.Since(x.polledAt) < apart {
			return ""
		}
		x.polledAt = time.Now()
		for id := range x.indexed {
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

// compare returns the pods to ask about, and the containers whose list entries differ from the index.
func (x *index) compare(pods, ctrs []criclient.Listed) (ask []string, differ []criclient.Listed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	ready := map[string]bool{}
	for _, l := range pods {
		if l.State != criclient.Ready {
			continue
		}
		ready[l.ID] = true
		if p := x.pods[l.ID]; p == nil || p.unreported {
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
		if l.State == criclient.Exited {
			continue
		}
		live[l.ID] = true
		if k, known := x.indexed[l.ID]; !known || l.State == criclient.Running && !k.p.runs[l.ID] {
			differ = append(differ, l)
		}
	}
	for id, k := range x.indexed {
		if !live[id] {
			differ = append(differ, criclient.Listed{ID: id, Pod: k.p.id})
		}
	}
	return ask, differ
}
