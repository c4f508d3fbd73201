package kernel

import (
	"path"
	"slices"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// listener is a function that is called after changes.
type listener struct {
	call func(file string, c cgroup.Change)
}

// OnChange has call called, outside the lock, after each cgroup made or removed
// and each accepted write, with its path; in version 1 for each hierarchy. Earlier
// listeners stay. The function that it returns removes this one.
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

// tell reports a cgroup in all hierarchies.
func (f *Cgroups) tell(dir string, c cgroup.Change) {
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
