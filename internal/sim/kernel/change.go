package kernel

import (
	"path"
	"slices"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// listener holds a function that was passed to OnChange. The address of the listener identifies the function.
type listener struct {
	call func(file string, c cgroup.Change)
}

// OnChange adds a function that is called with the path of each cgroup that is made or removed, and of each file that
// is written. Cgroups does not hold its lock during the call. In version 1, the function is called once for each
// hierarchy in which a cgroup is made or removed. The returned function ends the calls.
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

// notify calls the listeners for a change of a cgroup, in version 1 once for each hierarchy.
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
