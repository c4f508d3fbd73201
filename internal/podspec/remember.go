package podspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// memory is the stored form of what is known of pods.
type memory[P any] struct {
	Version int `json:"v"`
	Pods    []P `json:"pods"`
}

// recalled reads what was stored; none where nothing was. A pod that cannot be read
// is left out.
func recalled[P any](data []byte) (pods []P, unread []Unread, err error) {
	if len(data) == 0 {
		return nil, nil, nil
	}
	var m memory[json.RawMessage]
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, nil, err
	}
	if m.Version != 1 {
		return nil, nil, fmt.Errorf("version %d is unknown", m.Version)
	}
	for _, text := range m.Pods {
		var p P
		if err := json.Unmarshal(text, &p); err != nil {
			unread = append(unread, Unread{Err: err})
			continue
		}
		pods = append(pods, p)
	}
	return pods, unread, nil
}

// recall reads what an earlier agent knew. The error is of pods that are left out.
func recall(data []byte) (map[string]*lifecycle.PodSpec, error) {
	pods, unread, err := recalled[lifecycle.PodSpec](data)
	if err != nil {
		return nil, err
	}
	var good []*lifecycle.PodSpec
	for i := range pods {
		if pods[i].UID == "" {
			unread = append(unread, Unread{Err: errors.New("a pod without UID")})
			continue
		}
		pods[i].Remembered = true
		good = append(good, &pods[i])
	}
	known, twice, err := listed(good, "")
	if err != nil {
		return nil, err
	}
	return known, unreadError(append(unread, twice...))
}

// save keeps what is known, where that changed.
func (l *Ladder) save() error {
	l.mu.Lock()
	dirty := l.dirty
	l.dirty = false
	known := map[string]*lifecycle.PodSpec{}
	if dirty && l.o.Save != nil {
		for uid, s := range l.remembered {
			known[uid] = s
		}
		for i := len(l.rungs) - 1; i >= 0; i-- {
			for uid, s := range l.rungs[i].pods {
				known[uid] = s
			}
		}
	}
	l.mu.Unlock()
	if !dirty || l.o.Save == nil {
		return nil
	}
	m := memory[*lifecycle.PodSpec]{Version: 1, Pods: make([]*lifecycle.PodSpec, 0, len(known))}
	for _, uid := range sorted(known) {
		m.Pods = append(m.Pods, known[uid])
	}
	data, err := json.Marshal(m)
	if err == nil {
		err = l.o.Save(data)
	}
	if err != nil {
		l.mu.Lock()
		l.dirty = true
		l.mu.Unlock()
		l.o.Log.Warn("pod specs are not remembered; a restart without the kubelet would not know them", logkey.Err, err)
	}
	return err
}

// lastTries is how often a clean end tries to save.
const lastTries = 3

// saveLast saves at a clean end; save logs why where it cannot.
func saveLast(save func() error) {
	for range lastTries {
		if save() == nil {
			return
		}
	}
}

func sorted(m map[string]*lifecycle.PodSpec) []string { return slices.Sorted(maps.Keys(m)) }
