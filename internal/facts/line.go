package facts

import (
	"sync"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// containerQueue keeps the events of one container in the order of their arrival. Each event begins when the
// previous one has ended. Events of different containers do not wait for each other.
type containerQueue struct {
	mu   sync.Mutex
	last map[string]chan struct{} // by container id; closed when its last event has ended
}

// enter waits until the earlier events of the container have ended. Each of them has a time limit.
func (l *containerQueue) enter(ev *lifecycle.Event) (leave func()) {
	if ev.Container == nil || ev.Container.ID == "" {
		return func() {}
	}
	id, mine := ev.Container.ID, make(chan struct{})
	l.mu.Lock()
	before := l.last[id]
	l.last[id] = mine
	l.mu.Unlock()
	if before != nil {
		<-before
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.last[id] == mine {
			delete(l.last, id)
		}
		close(mine)
	}
}
