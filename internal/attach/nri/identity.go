package nri

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// The labels in which a kubelet sends names to the runtime. The kubelet overwrites values that a pod's author has set
// for these labels.
const (
	containerNameKey = "io.kubernetes.container.name"
	podNameKey       = "io.kubernetes.pod.name"
)

// identities completes the names and ids of containers. Some runtimes send a container's name or id only after the
// container's creation. Each connection has its own identities: after a reconnection, the runtime's Synchronize request
// has complete containers.
type identities struct {
	mu sync.Mutex // guards the fields below
	// pending has the ids that the agent made up for CreateContainer requests without an id. The key is the pod id and
	// the container name. The entry is deleted when the runtime sends its own id for the container.
	pending map[[2]string]string
	// madeUpIDs has the made-up ids by the runtime's ids, and runtimeIDs has the runtime's ids by the made-up ids.
	madeUpIDs, runtimeIDs map[string]string
	podIDs                map[string]string // pod ids, by the container ids that the agent made up
	lastNumber            int               // the number in the last made-up id
}

func newIdentities() *identities {
	return &identities{pending: map[[2]string]string{}, madeUpIDs: map[string]string{}, runtimeIDs: map[string]string{}, podIDs: map[string]string{}}
}

// setPodName sets a pod's name to its Kubernetes name if the runtime reports another name, as iSulad does.
func (p peer) setPodName(pod *lifecycle.Pod) {
	if pod != nil && p.name != "containerd" && p.name != "cri-o" {
		pod.Name = cmp.Or(pod.Labels[podNameKey], pod.Name)
	}
}

// setIdentity sets the name and the id of an event's container if the runtime left them out. At creation, CRI-O up to
// 1.36 leaves out the name, and iSulad leaves out the id. A container that was created without an id keeps its made-up
// id.
func (i *identities) setIdentity(kind lifecycle.Kind, pod *lifecycle.Pod, c *lifecycle.Container) {
	c.PodID = cmp.Or(c.PodID, pod.ID)
	c.Name = cmp.Or(c.Name, c.Labels[containerNameKey], c.Annotations[containerNameKey])
	if c.Name == "" && c.ID != "" && kind == lifecycle.CreateContainer {
		c.Name = lifecycle.UnnamedContainer
	}
	key := [2]string{c.PodID, c.Name}
	i.mu.Lock()
	defer i.mu.Unlock()
	if c.ID == "" {
		if kind == lifecycle.CreateContainer && c.Name != "" {
			i.lastNumber++
			c.ID = fmt.Sprintf("%s/%s#%d", c.PodID, c.Name, i.lastNumber)
			if failed, waits := i.pending[key]; waits {
				delete(i.podIDs, failed)
			}
			i.pending[key], i.podIDs[c.ID] = c.ID, c.PodID
		}
		return
	}
	if id, waits := i.pending[key]; waits && i.madeUpIDs[c.ID] == "" && kind != lifecycle.CreateContainer {
		delete(i.pending, key)
		i.madeUpIDs[c.ID], i.runtimeIDs[id] = id, c.ID
	}
	id, made := i.madeUpIDs[c.ID]
	if !made {
		return
	}
	if kind == lifecycle.RemoveContainer {
		delete(i.madeUpIDs, c.ID)
		delete(i.runtimeIDs, id)
		delete(i.podIDs, id)
	}
	c.ID = id
}

// forgetPod deletes the made-up ids of a removed pod. This is needed because the runtime does not report the end of a
// failed creation, or of a container that was removed with its pod.
func (i *identities) forgetPod(podID string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for key, id := range i.pending {
		if key[0] == podID {
			delete(i.pending, key)
			delete(i.podIDs, id)
		}
	}
	for id, pod := range i.podIDs {
		if pod == podID {
			delete(i.podIDs, id)
			delete(i.madeUpIDs, i.runtimeIDs[id])
			delete(i.runtimeIDs, id)
		}
	}
}

// runtimeID returns the runtime's id of the container with this id, which may be made up. It returns "" if the runtime
// has not sent its own id yet.
func (i *identities) runtimeID(id string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, waits := range i.pending {
		if waits == id {
			return ""
		}
	}
	return cmp.Or(i.runtimeIDs[id], id)
}
