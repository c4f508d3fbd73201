package cri

import (
	"context"
	"path"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// pathForm is how a runtime names the cgroup of a container, from its pod's and its
// id. Containerd joins cgroupParent and id, or writes "slice:cri-containerd:id"
// for systemd (1.6 to 2.x, internal/cri/server, getCgroupsPath); CRI-O does
// likewise with prefixes of its own. It is the same for all containers of a
// runtime handler, so that the runtime is asked once and not for each: what it
// reports one is the whole OCI spec.
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

// paths learns where runtimes make cgroups.
type paths struct {
	*parts

	mu    sync.Mutex
	forms map[string]pathForm // by runtime handler; guarded by mu
}

// complete finds out where the cgroup of a created container will be.
func (s *paths) complete(ctx context.Context, c *lifecycle.Container, p *lifecycle.Pod) *lifecycle.Container {
	if c.CgroupsPath != "" {
		return c
	}
	s.mu.Lock()
	known, learned := s.forms[p.RuntimeHandler]
	s.mu.Unlock()
	at := ""
	if learned && p.CgroupParent != "" {
		at = known.path(p.CgroupParent, c.ID)
	} else {
		var err error
		if at, err = s.client.Place(ctx, c.ID); err != nil {
			s.log.Warn("the runtime does not report a container that it created, so its cgroup is not known", logkey.Container, c.ID, logkey.Err, err)
			return c
		}
		if form, ok := formOf(at, p.CgroupParent, c.ID); ok {
			s.mu.Lock()
			s.forms[p.RuntimeHandler] = form
			s.mu.Unlock()
		}
	}
	with := func(c *lifecycle.Container) *lifecycle.Container { // what is in the store is replaced, not changed
		n := *c
		n.CgroupsPath = at
		return &n
	}
	var placed *lifecycle.Container
	s.store.change(c.ID, func(k *ctr) {
		placed = with(k.value)
		k.value = placed
	})
	if placed == nil { // it has gone meanwhile
		placed = with(c)
	}
	return placed
}

// forget is called when the runtime is away: it may come back with another
// configuration.
func (s *paths) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.forms)
}
