package podspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

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
func (l *Chain) save() error {
	return saveChanged(&l.mu, &l.dirty, l.o.Save, l.keptLocked, func(err error) {
		l.o.Log.Warn("pod specs are not remembered; a restart without the kubelet would not know them", logkey.Err, err)
	})
}

// keptLocked lists what is known, by UID.
func (l *Chain) keptLocked() []*lifecycle.PodSpec {
	known := maps.Clone(l.remembered)
	if known == nil {
		known = map[string]*lifecycle.PodSpec{}
	}
	for _, r := range slices.Backward(l.sources) {
		maps.Copy(known, r.pods)
	}
	out := make([]*lifecycle.PodSpec, 0, len(known))
	for _, uid := range slices.Sorted(maps.Keys(known)) {
		out = append(out, known[uid])
	}
	return out
}

// saveChanged saves what is known where it is dirty; mu guards both. It is dirty again,
// and failed told, where that cannot be done. save is nil where nothing is kept.
func saveChanged[P any](mu *sync.Mutex, dirty *bool, save func([]byte) error, known func() []P, failed func(error)) error {
	mu.Lock()
	var pods []P
	changed := *dirty && save != nil
	if *dirty = false; changed {
		pods = known()
	}
	mu.Unlock()
	if !changed {
		return nil
	}
	data, err := json.Marshal(memory[P]{Version: 1, Pods: pods})
	if err == nil {
		err = save(data)
	}
	if err != nil {
		mu.Lock()
		*dirty = true
		mu.Unlock()
		failed(err)
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
