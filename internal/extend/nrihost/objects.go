package nrihost

import (
	"slices"
	"strings"
	"sync"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
)

// objectStore stores the NRI messages about the pods and containers that plugins know.
type objectStore struct {
	mu   sync.Mutex                  // guards all below
	pods map[string]*storedPod       // by sandbox id
	ctrs map[string]*storedContainer // by container id
}

// storedPod is a sandbox. A change of the sandbox replaces msg, and does not modify the message to which msg points.
type storedPod struct {
	msg             *api.PodSandbox
	ending          bool // a CRI client stops or removes the pod, so the host refuses new containers in the pod
	stopReported    bool // the stop was reported to plugins
	removalReported bool // the removal was reported to plugins
}

// storedContainer is a container. A change of the container replaces msg, and does not modify the message to which msg
// points.
type storedContainer struct {
	msg             *api.Container
	stopReported    bool // the stop was reported to plugins
	removalReported bool // the removal was reported to plugins
	// undescribed means that msg has only the data of the CreateContainer request, and not of the container's status.
	undescribed bool
}

func newObjectStore() *objectStore {
	return &objectStore{pods: map[string]*storedPod{}, ctrs: map[string]*storedContainer{}}
}

// reset removes all pods and containers from the store.
func (b *objectStore) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.pods)
	clear(b.ctrs)
}

// addPod adds a pod. If stopped is true, the pod has stopped, and its stop is not reported to plugins again.
func (b *objectStore) addPod(p *api.PodSandbox, stopped bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods[p.GetId()] = &storedPod{msg: p, stopReported: stopped}
}

// addContainer adds a container. It replaces an earlier message about the container.
func (b *objectStore) addContainer(c *api.Container) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctrs[c.GetId()] = &storedContainer{msg: c}
}

// addUndescribed adds a container whose message has only the data of the CreateContainer request.
func (b *objectStore) addUndescribed(c *api.Container) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctrs[c.GetId()] = &storedContainer{msg: c, undescribed: true}
}

// undescribedContainer is a container whose message has only the data of the CreateContainer request.
type undescribedContainer struct {
	id, pod string // the ids of the container and its sandbox
	msg     *api.Container
}

// listUndescribed lists the containers whose messages have only the data of the CreateContainer request. It leaves out
// containers whose stop or removal was reported to plugins.
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

// replaceUndescribed replaces the stored message of a container by msg, which has the data of the container's status.
// listUndescribed has returned the parameter k. If the stored message has changed since then, replaceUndescribed does
// nothing.
func (b *objectStore) replaceUndescribed(k undescribedContainer, msg *api.Container) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.ctrs[k.id]; c != nil && c.undescribed && c.msg == k.msg {
		c.msg, c.undescribed = msg, false
	}
}

// contains reports whether the store has a pod or container with an id.
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

// isRunning reports whether a container runs and its stop was not reported to plugins yet.
func (b *objectStore) isRunning(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.ctrs[id]
	return c != nil && !c.stopReported && c.msg.GetState() == api.ContainerState_CONTAINER_RUNNING
}

// changeContainer replaces a container's message by a copy that the function change has changed.
func (b *objectStore) changeContainer(id string, change func(c *api.Container)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.ctrs[id]; c != nil {
		n := clone(c.msg)
		change(n)
		c.msg = n
	}
}

// changePod replaces a pod's message by a copy that the function change has changed.
func (b *objectStore) changePod(id string, change func(p *api.PodSandbox)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pods[id]; p != nil {
		n := clone(p.msg)
		change(n)
		p.msg = n
	}
}

// markEnding marks a pod that a CRI client stops or removes.
func (b *objectStore) markEnding(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pods[id]; p != nil {
		p.ending = true
	}
}

// isEnding reports whether a pod has stopped, or a CRI client stops or removes the pod now.
func (b *objectStore) isEnding(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pods[id]
	return p != nil && (p.ending || p.stopReported)
}

// markReported stores that the stop or the removal of a pod or container was reported to plugins. The function fieldOf
// chooses between the two: it is stoppedField or removedField. markReported returns true only for the first call. It
// returns false if the store does not have the pod or container.
func (b *objectStore) markReported(id string, fieldOf func(c *storedContainer, p *storedPod) *bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, p := b.ctrs[id], b.pods[id]
	if c == nil && p == nil {
		return false
	}
	reported := fieldOf(c, p)
	isFirst := !*reported
	*reported = true
	return isFirst
}

// isReported reports whether the stop or the removal of a pod or container was reported to plugins. The function
// fieldOf chooses between the two: it is stoppedField or removedField. isReported returns true if the store does not
// have the pod or container.
func (b *objectStore) isReported(id string, fieldOf func(c *storedContainer, p *storedPod) *bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, p := b.ctrs[id], b.pods[id]
	return c == nil && p == nil || *fieldOf(c, p)
}

// stoppedField returns the field stopReported of the container c, or of the pod p if c is nil.
func stoppedField(c *storedContainer, p *storedPod) *bool {
	if c != nil {
		return &c.stopReported
	}
	return &p.stopReported
}

// removedField returns the field removalReported of the container c, or of the pod p if c is nil.
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
// and containers whose stop or removal was reported to plugins. If it leaves out a pod, it also leaves out all
// containers of that pod.
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
