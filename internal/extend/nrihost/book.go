package nrihost

import (
	"slices"
	"strings"
	"sync"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
)

// objectStore stores what plugins know of pods and containers.
type objectStore struct {
	mu   sync.Mutex // guards all below
	pods map[string]*pod
	ctrs map[string]*ctr
}

// pod is a sandbox. A change replaces msg and does not modify it.
type pod struct {
	msg     *api.PodSandbox
	ending  bool // a caller stops or removes it, so nothing is created in it any more
	stopped bool // plugins were told
	removed bool
}

// ctr is a container. A change replaces msg and does not modify it.
type ctr struct {
	msg     *api.Container
	stopped bool
	removed bool
	// undescribed means that msg has only what the request for the container had.
	undescribed bool
}

func newObjectStore() *objectStore {
	return &objectStore{pods: map[string]*pod{}, ctrs: map[string]*ctr{}}
}

func (b *objectStore) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.pods)
	clear(b.ctrs)
}

func (b *objectStore) addPod(p *api.PodSandbox, stopped bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods[p.GetId()] = &pod{msg: p, stopped: stopped}
}

func (b *objectStore) addContainer(c *api.Container) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctrs[c.GetId()] = &ctr{msg: c}
}

// addUndescribed adds a container of which only the request is known.
func (b *objectStore) addUndescribed(c *api.Container) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctrs[c.GetId()] = &ctr{msg: c, undescribed: true}
}

// undescribed is a container of which only the request is known, at one moment.
type undescribed struct {
	id, pod string
	msg     *api.Container
}

// undescribed lists the containers of which only the request is known.
func (b *objectStore) undescribed() (all []undescribed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, c := range b.ctrs {
		if c.undescribed && !c.stopped && !c.removed {
			all = append(all, undescribed{id, c.msg.GetPodSandboxId(), c.msg})
		}
	}
	return all
}

// describe replaces what is known of an undescribed container, unless it changed since: each change has its own msg.
func (b *objectStore) describe(k undescribed, msg *api.Container) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.ctrs[k.id]; c != nil && c.undescribed && c.msg == k.msg {
		c.msg, c.undescribed = msg, false
	}
}

func (b *objectStore) has(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pods[id] != nil || b.ctrs[id] != nil
}

// pod returns a copy of a pod for plugins, or nil if the store does not have it.
func (b *objectStore) pod(id string) *api.PodSandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pods[id]; p != nil {
		return clone(p.msg)
	}
	return nil
}

// container returns copies of a container and its pod, or nil if the store does not have both.
func (b *objectStore) container(id string) (*api.Container, *api.PodSandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.ctrs[id]
	if c == nil {
		return nil, nil
	}
	p := b.pods[c.msg.GetPodSandboxId()]
	if p == nil {
		return nil, nil
	}
	return clone(c.msg), clone(p.msg)
}

// containersOf lists a pod's containers.
func (b *objectStore) containersOf(pod string) (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, c := range b.ctrs {
		if c.msg.GetPodSandboxId() == pod {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// containers lists the ids of all containers.
func (b *objectStore) containers() (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.ctrs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// isRunning reports whether a container runs, and plugins have not heard of its stop yet.
func (b *objectStore) isRunning(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.ctrs[id]
	return c != nil && !c.stopped && c.msg.GetState() == api.ContainerState_CONTAINER_RUNNING
}

// changeContainer replaces a container by a changed copy.
func (b *objectStore) changeContainer(id string, change func(c *api.Container)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.ctrs[id]; c != nil {
		n := clone(c.msg)
		change(n)
		c.msg = n
	}
}

func (b *objectStore) changePod(id string, change func(p *api.PodSandbox)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pods[id]; p != nil {
		n := clone(p.msg)
		change(n)
		p.msg = n
	}
}

// end notes that a caller stops or removes a pod.
func (b *objectStore) end(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pods[id]; p != nil {
		p.ending = true
	}
}

// ends reports whether a pod has stopped, or is about to.
func (b *objectStore) ends(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pods[id]
	return p != nil && (p.ending || p.stopped)
}

// markReported reports whether an end still has to be reported to plugins, and notes that the caller reports it now.
func (b *objectStore) markReported(id string, flag func(c *ctr, p *pod) *bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, p := b.ctrs[id], b.pods[id]
	if c == nil && p == nil {
		return false
	}
	told := flag(c, p)
	first := !*told
	*told = true
	return first
}

// isReported reports whether an end of an object was reported to plugins, or the store does not have the object.
func (b *objectStore) isReported(id string, flag func(c *ctr, p *pod) *bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, p := b.ctrs[id], b.pods[id]
	return c == nil && p == nil || *flag(c, p)
}

func stoppedField(c *ctr, p *pod) *bool {
	if c != nil {
		return &c.stopped
	}
	return &p.stopped
}

func removedField(c *ctr, p *pod) *bool {
	if c != nil {
		return &c.removed
	}
	return &p.removed
}

// drop forgets a container, or a pod with its containers.
func (b *objectStore) drop(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ctrs, id)
	if b.pods[id] == nil {
		return
	}
	delete(b.pods, id)
	for c, k := range b.ctrs {
		if k.msg.GetPodSandboxId() == id {
			delete(b.ctrs, c)
		}
	}
}

// listed returns what Synchronize sends to a plugin: pods that have not stopped, and their containers that have
// neither ended nor been removed, by id. Plugins that are told of an end later must have seen the object.
func (b *objectStore) listed() (pods []*api.PodSandbox, ctrs []*api.Container) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pods {
		if !p.stopped && !p.removed {
			pods = append(pods, clone(p.msg))
		}
	}
	for _, c := range b.ctrs {
		if p := b.pods[c.msg.GetPodSandboxId()]; p != nil && !p.stopped && !p.removed && !c.stopped && !c.removed {
			ctrs = append(ctrs, clone(c.msg))
		}
	}
	slices.SortFunc(pods, func(a, b *api.PodSandbox) int { return strings.Compare(a.GetId(), b.GetId()) })
	slices.SortFunc(ctrs, func(a, b *api.Container) int { return strings.Compare(a.GetId(), b.GetId()) })
	return pods, ctrs
}

func clone[M proto.Message](m M) M { return proto.Clone(m).(M) }
