package cri

import "github.com/trimtab/trimtab/internal/lifecycle"

// store is what is known of pods and containers: calls after the first name ids
// alone. The attachment's mutex guards it.
type store struct {
	pods map[string]*pod
	ctrs map[string]*ctr
}

// pod is a sandbox. told is replaced, not changed.
type pod struct {
	told *lifecycle.Pod
	born uint64 // the attachment's serial when it was noted
}

// ctr is a container. told is replaced, not changed.
type ctr struct {
	told    *lifecycle.Container
	pod     string
	born    uint64
	started bool
	ended   bool
	// pending are values decided between its creation and its start. They are
	// sent before it starts.
	pending []lifecycle.Value
}

func newStore() store { return store{pods: map[string]*pod{}, ctrs: map[string]*ctr{}} }

// merge lays newer values over older ones.
func merge(have, more []lifecycle.Value) []lifecycle.Value {
	for _, v := range more {
		found := false
		for i := range have {
			if have[i].Field == v.Field && have[i].Key == v.Key {
				have[i], found = v, true
			}
		}
		if !found {
			have = append(have, v)
		}
	}
	return have
}

func (a *Attachment) notePod(p *lifecycle.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serial++
	a.store.pods[p.ID] = &pod{told: p, born: a.serial}
}

func (a *Attachment) noteContainer(c *lifecycle.Container, started bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serial++
	a.store.ctrs[c.ID] = &ctr{told: c, pod: c.PodID, born: a.serial, started: started}
}

func (a *Attachment) pod(id string) *lifecycle.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.store.pods[id]; p != nil {
		return p.told
	}
	return nil
}

// container returns a container and its pod; nil where it is unknown.
func (a *Attachment) container(id string) (*lifecycle.Container, *lifecycle.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.store.ctrs[id]
	if c == nil {
		return nil, nil
	}
	if p := a.store.pods[c.pod]; p != nil {
		return c.told, p.told
	}
	return c.told, &lifecycle.Pod{ID: c.pod}
}

func (a *Attachment) change(id string, f func(c *ctr)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.store.ctrs[id]; c != nil {
		f(c)
	}
}

func (a *Attachment) dropContainer(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.store.ctrs, id)
	delete(a.retries, id)
}

func (a *Attachment) dropPod(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.store.pods, id)
	if a.face != nil {
		a.face.forgetLocked(id)
	}
	delete(a.retries, id)
	for c, k := range a.store.ctrs {
		if k.pod == id {
			delete(a.retries, c)
			delete(a.store.ctrs, c)
		}
	}
}
