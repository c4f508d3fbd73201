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
	// pending are ids that we made up for a creation request without an id, by pod and name. ours maps an id that
	// the runtime sent later to our id, and theirs maps our id to the runtime's.
	pending      map[[2]string]string
	ours, theirs map[string]string
	pods         map[string]string // by the ids we made up
	made         int
}

func newIdentities() *identities {
	return &identities{pending: map[[2]string]string{}, ours: map[string]string{}, theirs: map[string]string{}, pods: map[string]string{}}
}

// pod sets a pod's name to its Kubernetes name if the runtime reports another name, as iSulad does.
func (p peer) pod(pod *lifecycle.Pod) {
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
		c.Name = lifecycle.Unnamed
	}
	key := [2]string{c.PodID, c.Name}
	i.mu.Lock()
	defer i.mu.Unlock()
	if c.ID == "" {
		if kind == lifecycle.CreateContainer && c.Name != "" {
			i.made++
			c.ID = fmt.Sprintf("%s/%s#%d", c.PodID, c.Name, i.made)
			if failed, waits := i.pending[key]; waits {
				delete(i.pods, failed)
			}
			i.pending[key], i.pods[c.ID] = c.ID, c.PodID
		}
		return
	}
	if id, waits := i.pending[key]; waits && i.ours[c.ID] == "" && kind != lifecycle.CreateContainer {
		delete(i.pending, key)
		i.ours[c.ID], i.theirs[id] = id, c.ID
	}
	id, made := i.ours[c.ID]
	if !made {
		return
	}
	if kind == lifecycle.RemoveContainer {
		delete(i.ours, c.ID)
		delete(i.theirs, id)
		delete(i.pods, id)
	}
	c.ID = id
}

// ended forgets the containers of a removed pod. The runtime does not report the end of a failed creation, nor the
// end of a container that was removed with its pod.
func (i *identities) ended(podID string) {
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
			delete(i.ours, i.theirs[id])
			delete(i.theirs, id)
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
	return cmp.Or(i.theirs[id], id)
}
