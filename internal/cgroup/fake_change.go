package cgroup

import (
	"path"
	"slices"
)

// listener is who is told of changes.
type listener struct {
	call func(file string, c Change)
}

// OnChange has call called, outside the lock, after each cgroup made or removed
// and each accepted write, with its path; in version 1 for each hierarchy. Whoever
// listened before goes on listening. The end of it is what is returned.
func (f *Fake) OnChange(call func(file string, c Change)) (end func()) {
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

// tell tells of a cgroup in all hierarchies.
func (f *Fake) tell(dir string, c Change) {
	f.mu.Lock()
	listeners := f.listeners
	f.mu.Unlock()
	for _, l := range listeners {
		if f.version == V2 {
			l.call(dir, c)
			continue
		}
		for _, controller := range fakeControllers[V1] {
			l.call(path.Join(controller, dir), c)
		}
	}
}
