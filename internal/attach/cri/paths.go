package cri

import (
	"context"
	"path"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// pathForm is how a runtime forms the path of a container's cgroup from the pod's cgroup parent and the container's id.
// containerd joins the two with a slash, or writes "slice:cri-containerd:id" for systemd (1.6 to 2.x,
// internal/cri/server, getCgroupsPath). CRI-O does the same with its own prefixes. All containers of a runtime handler
// have the same form. So the agent requests the path of only one container per runtime handler: the runtime sends a
// path only with the whole OCI spec.
type pathForm struct {
	startsWithBase    bool   // the path begins with only the last element of the parent's path
	separator, suffix string // the text between parent and id, and the text after the id
}

// parsePathForm derives the form from the path of a container's cgroup. ok is false for a path that has none of the
// known forms.
func parsePathForm(at, parent, id string) (pathForm, bool) {
	before, after, found := strings.Cut(at, id)
	if !found || id == "" || parent == "" || strings.Contains(after, id) {
		return pathForm{}, false
	}
	if between, ok := strings.CutPrefix(before, parent); ok && strings.HasPrefix(between, "/") {
		return pathForm{separator: between, suffix: after}, true
	}
	if between, ok := strings.CutPrefix(before, path.Base(parent)); ok && strings.HasPrefix(between, ":") {
		return pathForm{startsWithBase: true, separator: between, suffix: after}, true
	}
	return pathForm{}, false
}

// path returns the cgroup path of a container.
func (s pathForm) path(parent, id string) string {
	if s.startsWithBase {
		parent = path.Base(parent)
	}
	return parent + s.separator + id + s.suffix
}

// pathLearner learns how each runtime handler forms the paths of containers' cgroups.
type pathLearner struct {
	*sharedState

	mu    sync.Mutex          // guards forms
	forms map[string]pathForm // by runtime handler
}

// withCgroupsPath returns a created container with the path of its cgroup, and stores the path. If the request for the
// path fails, it returns the container unchanged.
func (s *pathLearner) withCgroupsPath(ctx context.Context, c *lifecycle.Container, p *lifecycle.Pod) *lifecycle.Container {
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
		if at, err = s.client.CgroupsPath(ctx, c.ID); err != nil {
			s.log.Warn("the runtime reports no verbose status of a container that it created, so the agent does not know the container's cgroup", logkey.Container, c.ID, logkey.Err, err)
			return c
		}
		if form, ok := parsePathForm(at, p.CgroupParent, c.ID); ok {
			s.mu.Lock()
			s.forms[p.RuntimeHandler] = form
			s.mu.Unlock()
		}
	}
	with := func(c *lifecycle.Container) *lifecycle.Container { // a stored container is never modified, only replaced
		n := *c
		n.CgroupsPath = at
		return &n
	}
	var placed *lifecycle.Container
	s.store.change(c.ID, func(k *ctr) {
		placed = with(k.snapshot)
		k.snapshot = placed
	})
	if placed == nil { // the container was removed meanwhile
		placed = with(c)
	}
	return placed
}

// forgetForms drops all learned forms. The attachment calls it when the runtime disconnects, because the runtime may
// return with another configuration.
func (s *pathLearner) forgetForms() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.forms)
}
