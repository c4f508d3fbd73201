package nri

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// The labels in which a kubelet sends names to the runtime. The kubelet overwrites what
// a pod's author writes there.
const (
	containerNameKey = "io.kubernetes.container.name"
	podNameKey       = "io.kubernetes.pod.name"
)

// identities completes names and ids that some runtimes report late or in another form. It lives as long as a
// connection, because Synchronize reports complete containers.
type identities struct {
	mu sync.Mutex
	// pending are the ids that the agent made up for creation requests without an id, by pod and name.
	// provisionalIDs maps an id that the runtime sent later to the made-up id, and runtimeIDs maps a made-up id to the
	// runtime's id.
	pending                    map[[2]string]string
	provisionalIDs, runtimeIDs map[string]string
	pods                       map[string]string // pod ids, by the container ids that the agent made up
	count                      int               // number of ids that the agent made up
}

func newIdentities() *identities {
	return &identities{pending: map[[2]string]string{}, provisionalIDs: map[string]string{}, runtimeIDs: map[string]string{}, pods: map[string]string{}}
}

// setPodName sets a pod's name to its Kubernetes name if the runtime reports another name, as iSulad does.
func (p peer) setPodName(pod *lifecycle.Pod) {
	if pod != nil && p.name != "containerd" && p.name != "cri-o" {
		pod.Name = cmp.Or(pod.Labels[podNameKey], pod.Name)
	}
}

// complete sets the name and the id of an event's container. At creation, CRI-O up to 1.36 leaves out the name, and
// iSulad leaves out the id.
func (i *identities) complete(kind lifecycle.Kind, pod *lifecycle.Pod, c *lifecycle.Container) {
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
			i.count++
			c.ID = fmt.Sprintf("%s/%s#%d", c.PodID, c.Name, i.count)
			if failed, waits := i.pending[key]; waits {
				delete(i.pods, failed)
			}
			i.pending[key], i.pods[c.ID] = c.ID, c.PodID
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
		delete(i.pods, id)
	}
	c.ID = id
}

// forgetPod forgets the containers of a removed pod. The runtime does not report the end of a failed creation, or
// of a container that was removed with its pod.
func (i *identities) forgetPod(podID string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for key, id := range i.pending {
		if key[0] == podID {
			delete(i.pending, key)
			delete(i.pods, id)
		}
	}
	for id, pod := range i.pods {
		if pod == podID {
			delete(i.pods, id)
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
