package cgroup

import "path"

// Change is what became of a directory or file of a Fake.
type Change int

// The changes.
const (
	Made Change = iota
	Removed
	Written
)

// OnChange sets what is called, outside the lock, after each cgroup made or
// removed and each accepted write, with its path; in version 1 for each
// hierarchy.
func (f *Fake) OnChange(call func(file string, c Change)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notice = call
}

// tell tells of a cgroup in all hierarchies.
func (f *Fake) tell(dir string, c Change) {
	f.mu.Lock()
	notice := f.notice
	f.mu.Unlock()
	switch {
	case notice == nil:
	case f.version == V2:
		notice(dir, c)
	default:
		for _, controller := range fakeControllers[V1] {
			notice(path.Join(controller, dir), c)
		}
	}
}
