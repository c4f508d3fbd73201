package kernel

import (
	"path"
	"slices"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// listener has a function that is called after changes.
type listener struct {
	call func(file string, c cgroup.Change)
}

// OnChange adds a listener. It is called, without the lock, with the path of each cgroup that is made or removed and of
// each accepted write; in version 1 for each hierarchy. The returned function removes the listener.
func (f *Cgroups) OnChange(call func(file string, c cgroup.Change)) (end func()) {
	l := &listener{call}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners = append(slices.Clone(f.listeners), l)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.listeners = slices.DeleteFunc(slices.Clone(f.listeners), func(other *listener) bool { return other == l })
	}
}

// notify reports a change of a cgroup in all hierarchies.
func (f *Cgroups) notify(dir string, c cgroup.Change) {
	f.mu.Lock()
	listeners := f.listeners
	f.mu.Unlock()
	for _, l := range listeners {
		if f.version == cgroup.V2 {
			l.call(dir, c)
			continue
		}
		for _, controller := range controllers[cgroup.V1] {
			l.call(path.Join(controller, dir), c)
		}
	}
}
