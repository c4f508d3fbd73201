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

// identities completes names and ids that some runtimes report late or in another form. Each connection has its own
// identities: after a reconnection, Synchronize reports complete containers.
type identities struct {
	mu sync.Mutex // guards the fields below
	// pending has the ids that the agent made up for CreateContainer requests without an id, by pod id and container
	// name, until the runtime sends its own id. provisionalIDs maps an id that the runtime sent later to the made-up id,
	// and runtimeIDs maps a made-up id to the runtime's id.
	pending                    map[[2]string]string
	provisionalIDs, runtimeIDs map[string]string
	podIDs                     map[string]string // pod ids, by the container ids that the agent made up
	lastNumber                 int               // the number in the last made-up id
}

func newIdentities() *identities {
	return &identities{pending: map[[2]string]string{}, provisionalIDs: map[string]string{}, runtimeIDs: map[string]string{}, podIDs: map[string]string{}}
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
		c.Name = lifecycle.Unnamed
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
	if id, waits := i.pending[key]; waits && i.provisionalIDs[c.ID] == "" && kind != lifecycle.CreateContainer {
		delete(i.pending, key)
		i.provisionalIDs[c.ID], i.runtimeIDs[id] = id, c.ID
	}
	id, made := i.provisionalIDs[c.ID]
	if !made {
		return
	}
	if kind == lifecycle.RemoveContainer {
		delete(i.provisionalIDs, c.ID)
		delete(i.runtimeIDs, id)
		delete(i.podIDs, id)
	}
	c.ID = id
}

// forgetPod forgets the made-up ids of a removed pod. It is needed because the runtime does not report the end of a
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
			delete(i.provisionalIDs, i.runtimeIDs[id])
			delete(i.runtimeIDs, id)
		}
	}
}

// runtimeID returns the runtime's id of a container, or "" if the runtime has not sent one yet.
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
