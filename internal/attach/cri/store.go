package cri

import (
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// store has the pods and containers that the attachment knows. The attachment must store them, because only the first
// call about a pod or container describes it. Later calls have only the id.
type store struct {
	serial atomic.Uint64 // a counter; gives the order in which pods and containers were stored and started

	mu   sync.Mutex      // guards the fields below
	pods map[string]*pod // by id
	ctrs map[string]*ctr // by id
}

// pod is a sandbox. A change replaces snapshot and does not modify it.
type pod struct {
	snapshot    *lifecycle.Pod
	addedSerial uint64 // store.serial when the pod was stored
}

// ctr is a container. A change replaces snapshot and does not modify it.
type ctr struct {
	snapshot    *lifecycle.Container
	podID       string
	addedSerial uint64 // store.serial when the container was stored
	started     bool   // the container starts or has started
	ended       bool   // the container's end was reported
	// pending are values that the agent decided between the container's creation and its start. The attachment
	// sends them before the container starts.
	pending []lifecycle.Value
	// decisionErr is why the agent could not write the decision about the container for the OCI runtime wrapper. It
	// is nil if the wrapper has a decision, or needs none.
	decisionErr error
}

func newStore() *store { return &store{pods: map[string]*pod{}, ctrs: map[string]*ctr{}} }

// mergeValues merges newer values into older ones. A newer value replaces the older value of the same field and key.
func mergeValues(have, more []lifecycle.Value) []lifecycle.Value {
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

// compactCopy returns a copy of a container without the fields that no later call needs.
func compactCopy(c *lifecycle.Container) *lifecycle.Container {
	kept := *c
	kept.Args, kept.Mounts, kept.Devices = nil, nil, nil
	return &kept
}

// creationID returns a new id for a container that the runtime has not created yet.
func (s *store) creationID() string {
	return "creating-" + strconv.FormatUint(s.serial.Add(1), 10)
}

// notePod stores a pod, or replaces it.
func (s *store) notePod(p *lifecycle.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[p.ID] = &pod{snapshot: p, addedSerial: s.serial.Add(1)}
}

// noteContainer stores a container, or replaces it. started means that the container starts or runs.
func (s *store) noteContainer(c *lifecycle.Container, started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctrs[c.ID] = &ctr{snapshot: c, podID: c.PodID, addedSerial: s.serial.Add(1), started: started}
}

// reset replaces the whole content by the pods and containers of a Synchronize event.
func (s *store) reset(ev lifecycle.Event, addedSerial uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.pods)
	clear(s.ctrs)
	for _, p := range ev.Pods {
		s.pods[p.ID] = &pod{snapshot: p, addedSerial: addedSerial}
	}
	for _, c := range ev.Containers {
		s.ctrs[c.ID] = &ctr{snapshot: compactCopy(c), podID: c.PodID, addedSerial: addedSerial, started: c.State != lifecycle.StateCreated}
	}
}

// replacePods replaces stored pods by the handler's copies, so that the store and the handler share one copy.
func (s *store) replacePods(pods []*lifecycle.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range pods {
		if k := s.pods[p.ID]; k != nil {
			k.snapshot = p
		}
	}
}

// pod returns a pod, or nil if the store does not have the pod.
func (s *store) pod(id string) *lifecycle.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pods[id]; p != nil {
		return p.snapshot
	}
	return nil
}

// podOfLocked returns a container's pod. If the pod is unknown, it returns a pod that has only an id.
func (s *store) podOfLocked(c *ctr) *lifecycle.Pod {
	if p := s.pods[c.podID]; p != nil {
		return p.snapshot
	}
	return &lifecycle.Pod{ID: c.podID}
}

// podOfUID returns the id of a sandbox of the pod with this UID, or "" if the store has none.
func (s *store) podOfUID(uid string) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for known, p := range s.pods {
		if id == "" && uid != "" && p.snapshot.UID == uid {
			id = known
		}
	}
	return id
}

// container returns a container and its pod, or nil for both if the store does not have the container.
func (s *store) container(id string) (*lifecycle.Container, *lifecycle.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.ctrs[id]
	if c == nil {
		return nil, nil
	}
	return c.snapshot, s.podOfLocked(c)
}

// containersOf lists the ids of a pod's containers.
func (s *store) containersOf(pod string) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.ctrs {
		if c.podID == pod {
			ids = append(ids, id)
		}
	}
	return ids
}

// change calls f for the container with this id while it holds the lock. If the store does not have the container, it
// does nothing.
func (s *store) change(id string, f func(c *ctr)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.ctrs[id]; c != nil {
		f(c)
	}
}

// updatePending merges the values of an answer into a container's pending values, which wait for its start. If there
// are no pending values, it does nothing.
func (s *store) updatePending(id string, values []lifecycle.Value) {
	s.change(id, func(c *ctr) {
		if len(c.pending) > 0 {
			c.pending = mergeValues(c.pending, values)
		}
	})
}

// dropContainer forgets a container.
func (s *store) dropContainer(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ctrs, id)
}

// dropPod forgets a pod and its containers. It returns the ids of these containers.
func (s *store) dropPod(id string) (ctrs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, id)
	for c, k := range s.ctrs {
		if k.podID == id {
			ctrs = append(ctrs, c)
			delete(s.ctrs, c)
		}
	}
	return ctrs
}
