package nrihost

import (
	"slices"
	"strings"
	"sync"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
)

// objectStore stores pods and containers in the form in which plugins see them.
type objectStore struct {
	mu   sync.Mutex // guards all below
	pods map[string]*storedPod
	ctrs map[string]*storedContainer
}

// storedPod is a sandbox. A change replaces msg and does not modify it.
type storedPod struct {
	msg             *api.PodSandbox
	ending          bool // a caller stops or removes the pod, so no container may be created in it
	stopReported    bool // the stop was reported to plugins
	removalReported bool // the removal was reported to plugins
}

// storedContainer is a container. A change replaces msg and does not modify it.
type storedContainer struct {
	msg             *api.Container
	stopReported    bool // the stop was reported to plugins
	removalReported bool // the removal was reported to plugins
	// undescribed means that msg has only the data of the request for the container.
	undescribed bool
}

func newObjectStore() *objectStore {
	return &objectStore{pods: map[string]*storedPod{}, ctrs: map[string]*storedContainer{}}
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
	b.pods[p.GetId()] = &storedPod{msg: p, stopReported: stopped}
}

func (b *objectStore) addContainer(c *api.Container) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctrs[c.GetId()] = &storedContainer{msg: c}
}

// addUndescribed adds a container whose message has only the data of the request.
func (b *objectStore) addUndescribed(c *api.Container) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctrs[c.GetId()] = &storedContainer{msg: c, undescribed: true}
}

// undescribedContainer is a container whose message has only the data of the request.
type undescribedContainer struct {
	id, pod string
	msg     *api.Container
}

// listUndescribed lists the containers whose messages have only the data of the request.
func (b *objectStore) listUndescribed() (all []undescribedContainer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, c := range b.ctrs {
		if c.undescribed && !c.stopReported && !c.removalReported {
			all = append(all, undescribedContainer{id, c.msg.GetPodSandboxId(), c.msg})
		}
	}
	return all
}

// replaceUndescribed replaces the message of an undescribed container, unless the stored message changed since k was
// listed.
func (b *objectStore) replaceUndescribed(k undescribedContainer, msg *api.Container) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.ctrs[k.id]; c != nil && c.undescribed && c.msg == k.msg {
		c.msg, c.undescribed = msg, false
	}
}

func (b *objectStore) contains(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pods[id] != nil || b.ctrs[id] != nil
}

// pod returns a copy of a pod's message, or nil if the store does not have the pod.
func (b *objectStore) pod(id string) *api.PodSandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pods[id]; p != nil {
		return clone(p.msg)
	}
	return nil
}

// container returns copies of the messages of a container and its pod. Both are nil if the store lacks one of them.
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

// containersOf lists the ids of a pod's containers.
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

// isRunning reports whether a container runs, and its stop was not reported to plugins yet.
func (b *objectStore) isRunning(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.ctrs[id]
	return c != nil && !c.stopReported && c.msg.GetState() == api.ContainerState_CONTAINER_RUNNING
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

// markEnding marks a pod that a caller stops or removes.
func (b *objectStore) markEnding(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pods[id]; p != nil {
		p.ending = true
	}
}

// isEnding reports whether a pod has stopped, or is about to.
func (b *objectStore) isEnding(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pods[id]
	return p != nil && (p.ending || p.stopReported)
}

// markReported reports whether an event of an object was not reported to plugins yet, and marks it as reported. flag
// returns the field that has the mark.
func (b *objectStore) markReported(id string, flag func(c *storedContainer, p *storedPod) *bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, p := b.ctrs[id], b.pods[id]
	if c == nil && p == nil {
		return false
	}
	reported := flag(c, p)
	first := !*reported
	*reported = true
	return first
}

// isReported reports whether an event of an object was reported to plugins. It is true if the store does not have the
// object.
func (b *objectStore) isReported(id string, flag func(c *storedContainer, p *storedPod) *bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, p := b.ctrs[id], b.pods[id]
	return c == nil && p == nil || *flag(c, p)
}

func stoppedField(c *storedContainer, p *storedPod) *bool {
	if c != nil {
		return &c.stopReported
	}
	return &p.stopReported
}

func removedField(c *storedContainer, p *storedPod) *bool {
	if c != nil {
		return &c.removalReported
	}
	return &p.removalReported
}

// remove removes a container, or a pod with its containers, from the store.
func (b *objectStore) remove(id string) {
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

// objectsForSync returns the pods and containers that Synchronize sends to a plugin, sorted by id. It leaves out pods
// that have stopped, with their containers, and objects whose stop or removal was reported already.
func (b *objectStore) objectsForSync() (pods []*api.PodSandbox, ctrs []*api.Container) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pods {
		if !p.stopReported && !p.removalReported {
			pods = append(pods, clone(p.msg))
		}
	}
	for _, c := range b.ctrs {
		if p := b.pods[c.msg.GetPodSandboxId()]; p != nil && !p.stopReported && !p.removalReported && !c.stopReported && !c.removalReported {
			ctrs = append(ctrs, clone(c.msg))
		}
	}
	slices.SortFunc(pods, func(a, b *api.PodSandbox) int { return strings.Compare(a.GetId(), b.GetId()) })
	slices.SortFunc(ctrs, func(a, b *api.Container) int { return strings.Compare(a.GetId(), b.GetId()) })
	return pods, ctrs
}

func clone[M proto.Message](m M) M { return proto.Clone(m).(M) }
