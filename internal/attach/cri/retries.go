package cri

import (
	"maps"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/attach/criclient"
)

// firstRetry and lastRetry bound the pause before we ask the runtime again about a pod or container that it could
// not describe.
const firstRetry, lastRetry = time.Second, 30 * time.Second

// retries says when to ask the runtime again about pods and containers that it could not describe.
type retries struct {
	mu   sync.Mutex
	byID map[string]retry // by id; guarded by mu
}

// retry says when to ask about one of them.
type retry struct {
	at    time.Time
	pause time.Duration
	busy  bool // a question about it is running
}

func newRetries() *retries { return &retries{byID: map[string]retry{}} }

// begin reports whether it is time to ask. The caller calls end afterwards.
func (r *retries) begin(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.byID[id]
	if n.busy || time.Now().Before(n.at) {
		return false
	}
	n.busy = true
	r.byID[id] = n
	return true
}

func (r *retries) end(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n, waits := r.byID[id]; waits {
		n.busy = false
		r.byID[id] = n
	}
}

// schedule schedules another question about a pod or container. The pause doubles each time.
func (r *retries) schedule(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.byID[id]
	n.pause = min(max(2*n.pause, firstRetry), lastRetry)
	n.at = time.Now().Add(n.pause)
	r.byID[id] = n
}

// keep forgets all ids that are not in the lists.
func (r *retries) keep(lists ...[]criclient.Listed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.byID) == 0 {
		return
	}
	there := map[string]bool{}
	for _, list := range lists {
		for _, l := range list {
			there[l.ID] = true
		}
	}
	maps.DeleteFunc(r.byID, func(id string, _ retry) bool { return !there[id] })
}

// drop forgets the given ids, so that the next question about them is asked at once.
func (r *retries) drop(ids ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		delete(r.byID, id)
	}
}
