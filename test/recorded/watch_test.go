package recorded

import (
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/test/conformance"
)

// notifyDelay is the delay between a write and its notification, in which the writer finishes. No other timer is a
// multiple of it.
const notifyDelay = 97 * time.Microsecond

// watcher reports writes after a delay, so that the result does not depend on scheduling.
type watcher struct {
	*conformance.Watcher

	out   chan cgroup.Notice
	ended chan struct{}
}

func watch(k *kernel.Cgroups) *watcher {
	w := &watcher{Watcher: conformance.Watch(k), out: make(chan cgroup.Notice), ended: make(chan struct{})}
	go w.pass()
	return w
}

func (w *watcher) pass() {
	for {
		var all []cgroup.Notice
		select {
		case n := <-w.Watcher.Notices():
			all = append(all, n)
		case <-w.ended:
			return
		}
		time.Sleep(notifyDelay)
		for len(w.Watcher.Notices()) > 0 {
			all = append(all, <-w.Watcher.Notices())
		}
		for _, n := range all {
			select {
			case w.out <- n:
			case <-w.ended:
				return
			}
		}
	}
}

// Add watches a directory.
func (w *watcher) Add(dir string) error {
	time.Sleep(notifyDelay)
	return w.Watcher.Add(dir)
}

// Notices returns the changes in their order.
func (w *watcher) Notices() <-chan cgroup.Notice { return w.out }

// Close ends the watcher.
func (w *watcher) Close() error {
	close(w.ended)
	return w.Watcher.Close()
}
