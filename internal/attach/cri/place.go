package cri

import (
	"context"
	"path"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// pathForm is how a runtime names the cgroup of a container, from its pod's and its
// id. Containerd joins cgroupParent and id, or writes "slice:cri-containerd:id"
// for systemd (1.6 to 2.x, internal/cri/server, getCgroupsPath); CRI-O does
// likewise with prefixes of its own. It is the same for all containers of a
// runtime handler, so that the runtime is asked once and not for each: what it
// tells of one is the whole OCI spec.
type pathForm struct {
	base           bool // begins with the last element of the pod's alone
	between, after string
}

// formOf reads it off a container's path. Paths that are not made so have none.
func formOf(at, parent, id string) (pathForm, bool) {
	before, after, found := strings.Cut(at, id)
	if !found || id == "" || parent == "" || strings.Contains(after, id) {
		return pathForm{}, false
	}
	if between, ok := strings.CutPrefix(before, parent); ok && strings.HasPrefix(between, "/") {
		return pathForm{between: between, after: after}, true
	}
	if between, ok := strings.CutPrefix(before, path.Base(parent)); ok && strings.HasPrefix(between, ":") {
		return pathForm{base: true, between: between, after: after}, true
	}
	return pathForm{}, false
}

// path is that of a container.
func (s pathForm) path(parent, id string) string {
	if s.base {
		parent = path.Base(parent)
	}
	return parent + s.between + id + s.after
}

// place finds out where the cgroup of a created container will be.
func (a *Attachment) place(ctx context.Context, c *lifecycle.Container, p *lifecycle.Pod) *lifecycle.Container {
	if c.CgroupsPath != "" {
		return c
	}
	a.mu.Lock()
	known, learned := a.forms[p.RuntimeHandler]
	a.mu.Unlock()
	at := ""
	if learned && p.CgroupParent != "" {
		at = known.path(p.CgroupParent, c.ID)
	} else {
		var err error
		if at, err = a.backend.place(ctx, c.ID); err != nil {
			a.o.Log.Warn("the runtime does not tell of a container it created; where its cgroup is, is not known", logkey.Container, c.ID, logkey.Err, err)
			return c
		}
		if s, ok := formOf(at, p.CgroupParent, c.ID); ok {
			a.mu.Lock()
			a.forms[p.RuntimeHandler] = s
			a.mu.Unlock()
		}
	}
	var placed *lifecycle.Container
	a.change(c.ID, func(k *ctr) {
		kept := *k.told // what is in the store is replaced, not changed
		kept.CgroupsPath = at
		k.told, placed = &kept, &kept
	})
	if placed == nil { // it has gone meanwhile
		n := *c
		n.CgroupsPath = at
		placed = &n
	}
	return placed
}

// forgetForms is called when the runtime is away: it may come back with another
// configuration.
func (a *Attachment) forgetForms() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.forms)
}
