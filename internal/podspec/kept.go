package podspec

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// savedPod is the saved form of the CPUs and memory nodes that the kubelet's static managers have assigned to a pod.
// Devices are not saved, so that no container gets a device because of an old grant.
type savedPod struct {
	UID        string                 `json:"uid"`
	Namespace  string                 `json:"namespace"`
	Name       string                 `json:"name"`
	Containers map[string]savedStatic `json:"containers"`
}

// savedStatic is the saved form of a lifecycle.StaticGrant.
type savedStatic struct {
	CPUs     []int `json:"cpus,omitempty"`
	Mems     []int `json:"mems,omitempty"`
	Reported bool  `json:"told,omitempty"`
}

// loadGrants reads the grants that an earlier agent has saved. It returns the grants that it can read, and an error
// about the pods that it cannot read. If it can read nothing, it returns only an error.
func loadGrants(data []byte) (map[string]*lifecycle.KubeletGrants, error) {
	pods, unread, err := loadSaved[savedPod](data)
	if err != nil {
		return nil, err
	}
	out := map[string]*lifecycle.KubeletGrants{}
	for _, p := range pods {
		k, err := p.grants()
		if err != nil {
			unread = append(unread, UnreadPod{p.UID, err})
			continue
		}
		out[p.UID] = k
	}
	return out, unreadError(unread)
}

// grants converts a saved pod. It returns an error if the saved pod is not valid.
func (p *savedPod) grants() (*lifecycle.KubeletGrants, error) {
	if p.UID == "" || p.Name == "" {
		return nil, errors.New("a saved pod has no UID or no name")
	}
	k := &lifecycle.KubeletGrants{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Static: map[string]lifecycle.StaticGrant{}}
	for name, c := range p.Containers {
		for _, id := range slices.Concat(c.CPUs, c.Mems) {
			if id < 0 || id >= maxID {
				return nil, fmt.Errorf("pod %.80q: %w", p.Namespace+"/"+p.Name, errBadID)
			}
		}
		k.Static[name] = lifecycle.StaticGrant{CPUs: c.CPUs, Mems: c.Mems, Reported: c.Reported}
	}
	return k, nil
}

// save saves the known CPUs and memory nodes, if they have changed.
func (g *Grants) save() error {
	return saveChanged(&g.mu, &g.dirty, g.o.Save, g.savedPodsLocked, func(err error) {
		g.o.Log.Warn("the agent cannot save which CPUs and memory nodes the kubelet assigned; after a restart it does not know them until the kubelet answers", logkey.Err, err)
	})
}

// savedPodsLocked returns the pods to save, sorted by UID. They include the pods that an earlier agent saved and that
// no answer of the kubelet has replaced or removed.
func (g *Grants) savedPodsLocked() []savedPod {
	out := []savedPod{}
	all := maps.Clone(g.knownGrants)
	for uid, k := range g.savedGrants {
		if all[uid] == nil {
			all[uid] = k
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		k := all[uid]
		p := savedPod{UID: uid, Namespace: k.Namespace, Name: k.Name, Containers: map[string]savedStatic{}}
		for name, s := range k.Static {
			if s.Reported || len(s.Mems) > 0 {
				p.Containers[name] = savedStatic{CPUs: s.CPUs, Mems: s.Mems, Reported: s.Reported}
			}
		}
		if len(p.Containers) > 0 {
			out = append(out, p)
		}
	}
	return out
}
