package bypass

import (
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/attach/criclient"
)

// index finds by id what the runtime is known to have. Its mutex guards fields of pods, too.
type index struct {
	mu       sync.Mutex
	pods     map[string]*pod
	kept     map[string]kept // by container id
	byDir    map[string]string
	unknown  map[string]string // directories by ids that are being resolved
	turn     []string          // containers to be asked about, in turn
	turnedAt time.Time
}

func newIndex() index {
	return index{pods: map[string]*pod{}, kept: map[string]kept{}, byDir: map[string]string{}, unknown: map[string]string{}}
}

func (x *index) isPod(id string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.pods[id] != nil
}

// of finds a container.
func (x *index) of(id string) (kept, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k, ok := x.kept[id]
	return k, ok
}

// at finds the container whose cgroup is at a directory.
func (x *index) at(dir string) (id string, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id, ok = x.byDir[dir]
	return id, ok
}

// hint notes one for a pod's worker. It returns the pod where no worker is at it.
func (x *index) hint(podID, id string, w why) *pod {
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

// take takes a worker's hints. Where there are none, it is not at the pod any more.
func (x *index) take(p *pod) hints {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := p.inbox
	p.inbox, p.busy = hints{}, !h.empty()
	return h
}

// keep makes a container findable.
func (x *index) keep(p *pod, c *ctr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.kept[c.id] = kept{p, c}
	if c.dir != "" {
		x.byDir[c.dir] = c.id
	}
	if c.running {
		p.runs[c.id] = true
	}
}

// end notes that a container has ended. It stays findable: its removal is still to come.
func (x *index) end(p *pod, c *ctr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forgetLocked(c)
	delete(p.runs, c.id)
	x.kept[c.id] = kept{p, c}
}

func (x *index) forget(c *ctr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forgetLocked(c)
}

func (x *index) forgetLocked(c *ctr) {
	delete(x.kept, c.id)
	if x.byDir[c.dir] == c.id {
		delete(x.byDir, c.dir)
	}
}

// drop forgets a pod and its containers.
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

// found takes in that a cgroup of that id is there. It returns the pod of a container
// that is known, "" for others, and whether the runtime is to be asked what it is for.
func (x *index) found(id, dir string) (podID string, ask bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k, known := x.kept[id]; known {
		return k.p.id, false
	}
	if x.pods[id] != nil || x.unknown[id] != "" {
		return "", false
	}
	if len(x.unknown) < maxUnknown {
		x.unknown[id] = dir
	}
	return "", true
}

// foundDir is where a cgroup of that id appeared that nobody knew.
func (x *index) foundDir(id string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.unknown[id]
}

// resolved ends what found began.
func (x *index) resolved(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.unknown, id)
}

// next is the container to be asked about in turn; "" for none. Turns are so far apart.
func (x *index) next(apart time.Duration) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.turn) == 0 {
		if time.Since(x.turnedAt) < apart {
			return ""
		}
		x.turnedAt = time.Now()
		for id := range x.kept {
			x.turn = append(x.turn, id)
		}
	}
	n := len(x.turn)
	if n == 0 {
		return ""
	}
	id := x.turn[n-1]
	x.turn = x.turn[:n-1]
	return id
}

// compare returns the pods, and the containers, that lists show otherwise than they are
// known.
func (x *index) compare(pods, ctrs []criclient.Listed) (ask []string, differ []criclient.Listed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	ready := map[string]bool{}
	for _, l := range pods {
		if l.State != criclient.Ready {
			continue
		}
		ready[l.ID] = true
		if p := x.pods[l.ID]; p == nil || p.lacks {
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
		if k, known := x.kept[l.ID]; !known || l.State == criclient.Running && !k.p.runs[l.ID] {
			differ = append(differ, l)
		}
	}
	for id, k := range x.kept {
		if !live[id] {
			differ = append(differ, criclient.Listed{ID: id, Pod: k.p.id})
		}
	}
	return ask, differ
}
