package keeper

import (
	"fmt"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// confirm reads back what a move wrote and ends it.
func (p *listPass) confirm(m *move) {
	k := p.k
	switch {
	case m.done:
		return
	case m.same:
		k.inForce(m, Same, m.before)
		return
	}
	dir, field := m.place.dir, m.place.field
	if k.tree.Version == cgroup.V2 && m.final != "" {
		// What it amounts to is the better proof: it says that the text was
		// taken and that the parents let it be in force.
		if effective, err := p.ids(k.tree.Effective(dir, field)); err == nil && *effective == *m.want {
			k.finish(m.job, Applied, m.final, m.final, nil)
			return
		}
	}
	text, err := k.tree.Read(dir, field, "")
	switch {
	case err != nil:
		k.fail(m.job, err)
	case !cgroup.Same(field, "", text, m.final):
		k.fail(m.job, k.differs(m.job, text))
	case m.clip != nil:
		k.finish(m.job, Clipped, text, text, m.clip)
	default:
		k.inForce(m, Applied, text)
	}
}

// inForce ends a move whose text is right. In version 2 the parents may still
// allow only a part of it, or nothing, in which case all the parent has is used.
func (k *Keeper) inForce(m *move, s State, text string) {
	if k.tree.Version == cgroup.V1 || m.final == "" {
		k.finish(m.job, s, text, text, nil)
		return
	}
	list, err := k.tree.Effective(m.place.dir, m.place.field)
	if err != nil {
		k.fail(m.job, err)
		return
	}
	if cgroup.Same(m.place.field, "", list, m.final) {
		k.finish(m.job, s, text, text, nil)
		return
	}
	file, _ := k.tree.File(m.place.dir, m.place.field, "")
	k.finish(m.job, Clipped, list, text, &cgroup.Error{
		Op: "verify", Path: file, Value: m.final, Err: fmt.Errorf("the parent cgroup or offline CPUs leave %s", list),
	})
}

// differs is the error of a write the kernel took and did not keep.
func (k *Keeper) differs(j *job, kernel string) error {
	file, _ := k.tree.File(j.place.dir, j.place.field, j.place.key)
	return &cgroup.Error{Op: "verify", Path: file, Value: j.want, Err: fmt.Errorf("reads back %q", kernel)}
}

// desiredIdle reports whether a cgroup is kept idle by us.
func (k *Keeper) desiredIdle(dir string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.rows[place{dir, lifecycle.Unified, idleKey}]
	return r != nil && r.want == "1" && r.verified
}
