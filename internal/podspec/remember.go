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

// savedForm is the JSON form in which pods are saved.
type savedForm[P any] struct {
	Version int `json:"v"`
	Pods    []P `json:"pods"`
}

// loadSaved reads the data that saveChanged has saved. It returns no pods if data is empty. unread has the pods that it
// cannot read.
func loadSaved[P any](data []byte) (pods []P, unread []UnreadPod, err error) {
	if len(data) == 0 {
		return nil, nil, nil
	}
	var m savedForm[json.RawMessage]
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, nil, err
	}
	if m.Version != 1 {
		return nil, nil, fmt.Errorf("version %d is unknown", m.Version)
	}
	for _, text := range m.Pods {
		var p P
		if err := json.Unmarshal(text, &p); err != nil {
			unread = append(unread, UnreadPod{Err: err})
			continue
		}
		pods = append(pods, p)
	}
	return pods, unread, nil
}

// loadSpecs reads the specs that an earlier agent has saved. It returns the specs that it can read, and an error about
// the pods that it cannot read. If it can read nothing, it returns only an error.
func loadSpecs(data []byte) (map[string]*lifecycle.PodSpec, error) {
	pods, unread, err := loadSaved[lifecycle.PodSpec](data)
	if err != nil {
		return nil, err
	}
	var good []*lifecycle.PodSpec
	for i := range pods {
		if pods[i].UID == "" {
			unread = append(unread, UnreadPod{Err: errors.New("a saved pod has no UID")})
			continue
		}
		pods[i].FromStateFile = true
		good = append(good, &pods[i])
	}
	known, twice, err := indexByUID(good, "")
	if err != nil {
		return nil, err
	}
	return known, unreadError(append(unread, twice...))
}

// save saves the known specs, if they have changed.
func (l *Chain) save() error {
	return saveChanged(&l.mu, &l.dirty, l.o.Save, l.specsLocked, func(err error) {
		l.o.Log.Warn("the agent cannot save pod specs; after a restart it does not know them until the kubelet answers", logkey.Err, err)
	})
}

// specsLocked returns the known specs, sorted by UID.
func (l *Chain) specsLocked() []*lifecycle.PodSpec {
	known := maps.Clone(l.savedSpecs)
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

// saveChanged saves the pods that the function list returns, if dirty is set, and clears dirty. It holds mu while it
// uses dirty and calls list. If save returns an error, saveChanged sets dirty again and calls onFailure. If save is
// nil, it saves nothing.
func saveChanged[P any](mu *sync.Mutex, dirty *bool, save func([]byte) error, list func() []P, onFailure func(error)) error {
	mu.Lock()
	var pods []P
	changed := *dirty && save != nil
	if *dirty = false; changed {
		pods = list()
	}
	mu.Unlock()
	if !changed {
		return nil
	}
	data, err := json.Marshal(savedForm[P]{Version: 1, Pods: pods})
	if err == nil {
		err = save(data)
	}
	if err != nil {
		mu.Lock()
		*dirty = true
		mu.Unlock()
		onFailure(err)
	}
	return err
}

// finalSaveTries is the maximum number of times that a stopping agent tries to save.
const finalSaveTries = 3

// saveAtEnd calls save until it succeeds, at most finalSaveTries times. It is for the end of the agent. save itself
// logs its errors.
func saveAtEnd(save func() error) {
	for range finalSaveTries {
		if save() == nil {
			return
		}
	}
}
