package facts

import (
	"sync"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// containerQueue keeps the events of one container in the order of their arrival. Each event begins when the
// container's previous event has ended. Events of different containers do not wait for each other.
type containerQueue struct {
	mu        sync.Mutex
	lastEvent map[string]chan struct{} // by container id; the channel is closed when the container's last event has ended
}

// enter waits until the earlier events of the event's container have ended. Each event has a time limit, so the wait
// ends. The caller calls leave at the end of the event.
func (l *containerQueue) enter(ev *lifecycle.Event) (leave func()) {
	if ev.Container == nil || ev.Container.ID == "" {
		return func() {}
	}
	id, mine := ev.Container.ID, make(chan struct{})
	l.mu.Lock()
	before := l.lastEvent[id]
	l.lastEvent[id] = mine
	l.mu.Unlock()
	if before != nil {
		<-before
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.lastEvent[id] == mine {
			delete(l.lastEvent, id)
		}
		close(mine)
	}
}
