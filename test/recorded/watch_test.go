package recorded

import (
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/test/conformance"
)

// aMoment is the delay between a write and its notification: by then the writer has finished. No other time is a multiple of it.
const aMoment = 97 * time.Microsecond

// watcher reports writes a moment after them, so that what is found does not depend on who is faster.
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
		time.Sleep(aMoment)
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
	time.Sleep(aMoment)
	return w.Watcher.Add(dir)
}

// Notices are in the order in which things happened.
func (w *watcher) Notices() <-chan cgroup.Notice { return w.out }

// Close ends it.
func (w *watcher) Close() error {
	close(w.ended)
	return w.Watcher.Close()
}
