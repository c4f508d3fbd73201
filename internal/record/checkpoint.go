package record

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/statefile"
)

// Checkpoint stores the state of containers that is not in the annotations of containers (package record). It has
// changes after the creation of containers, such as later requests of the kubelet. It also has the records of
// containers without such an annotation. If the checkpoint is lost, containers keep their CPUs, but `trimtab release`
// restores older values.
type Checkpoint struct {
	log *slog.Logger
	// decisionLock is held while a decision changes the checkpoint. Text takes this lock too, so that its result never
	// has only some of the changes of a decision.
	decisionLock sync.Locker
	// A signal on saveSoon makes SaveChanges save after saveDelay. A signal on saveAtOnce makes SaveChanges save at
	// once.
	saveSoon, saveAtOnce chan struct{}
	dirty                atomic.Bool // there are unsaved changes

	mu      sync.Mutex // guards all fields below
	content checkpointFile[lifecycle.Record, Overlay]
	// unsavedChanges has the containers whose last change is not saved. The value is the number of the change (see
	// changeCount).
	unsavedChanges map[string]uint64
	changeCount    uint64 // the number of changes of container records so far
	// tryEnded is closed when the next attempt to save ends; nil while SaveChanges does not run.
	tryEnded       chan struct{}
	lastSaveFailed bool // the last attempt to save failed
	// missingLists counts, for each container or pod, how many consecutive lists of the runtime lacked it.
	missingLists map[string]int
}

// checkpointFile is the JSON form of a checkpoint. R is the type of a container's record, and P the type of a pod's
// overlay. Both are json.RawMessage when a file is decoded.
type checkpointFile[R, P any] struct {
	Version    int          `json:"v"`
	Containers map[string]R `json:"containers"`
	// Grants are the CPUs that pods own, by pod UID, as kernel lists. A pod keeps these CPUs while a container
	// restarts.
	Grants map[string]string `json:"grants"`
	// Lent are the UIDs of pods whose CPUs reclaimed containers may use.
	Lent map[string]bool `json:"lent,omitempty"`
	// Balloons are the CPUs of each balloon, by name, as kernel lists.
	Balloons map[string]string `json:"balloons,omitempty"`
	// Devices are the exclusive CDI devices of containers, by pod UID and container name. A container keeps these
	// devices while it restarts.
	Devices map[string]map[string][]string `json:"devices,omitempty"`
	// Pods are the labels and annotations from hook servers, by sandbox id.
	Pods map[string]P `json:"pods,omitempty"`
}

// Overlay has the labels and annotations that hook servers added to a pod and that the runtime does not store.
type Overlay struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// NewCheckpoint decodes a saved checkpoint; data may be empty. It logs the containers and pods that cannot be decoded.
// The caller holds the lock decision while a decision changes the checkpoint.
func NewCheckpoint(data []byte, decision sync.Locker, log *slog.Logger) *Checkpoint {
	held, unread, err := decode(data)
	if err != nil {
		log.Warn("the agent cannot read its checkpoint file; it uses only the records that the runtime stores as annotations", logkey.Err, err)
	}
	for _, err := range unread {
		log.Warn("the agent cannot read the entry of a container or pod in its checkpoint file; for this container or pod, the agent uses only what the runtime stores", logkey.Err, err)
	}
	return &Checkpoint{log: log, decisionLock: decision, content: held, unsavedChanges: map[string]uint64{}, missingLists: map[string]int{}, saveSoon: make(chan struct{}, 1), saveAtOnce: make(chan struct{}, 1)}
}

// CheckDecodable returns an error if a saved checkpoint cannot be decoded. The caller then renames the file.
func CheckDecodable(data []byte) error {
	_, _, err := decode(data)
	return err
}

// decode decodes a checkpoint. unread has the errors of containers and pods that cannot be decoded.
func decode(data []byte) (held checkpointFile[lifecycle.Record, Overlay], unread []error, err error) {
	held = checkpointFile[lifecycle.Record, Overlay]{Version: 1, Containers: map[string]lifecycle.Record{}, Pods: map[string]Overlay{}}
	if len(data) == 0 {
		return held, nil, nil
	}
	var f checkpointFile[json.RawMessage, json.RawMessage]
	if err := json.Unmarshal(data, &f); err != nil {
		return held, nil, fmt.Errorf("read checkpoint: %w", err)
	}
	if f.Version != 1 {
		return held, nil, fmt.Errorf("read checkpoint: version %d is unknown", f.Version)
	}
	held.Grants, held.Lent, held.Balloons, held.Devices = f.Grants, f.Lent, f.Balloons, f.Devices
	return held, append(decodeEach(held.Containers, f.Containers), decodeEach(held.Pods, f.Pods)...), nil
}

// decodeEach decodes containers or pods. It skips those that cannot be decoded.
func decodeEach[V any](into map[string]V, texts map[string]json.RawMessage) (unread []error) {
	for id, text := range texts {
		var v V
		if err := json.Unmarshal(text, &v); err != nil {
			unread = append(unread, fmt.Errorf("checkpoint of %s: %w", id, err))
			continue
		}
		into[id] = v
	}
	return unread
}

// SetRecord stores the current record of a container.
func (cp *Checkpoint) SetRecord(id string, r lifecycle.Record) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.content.Containers[id] = r.AsStored()
	cp.changeCount++
	cp.unsavedChanges[id] = cp.changeCount
	cp.markDirty()
}

// AwaitSaved waits until the record of a container is saved. It stops waiting when an attempt to save fails or ctx
// ends. If SaveChanges does not run, it does not wait.
//
// Callers must call AwaitSaved before they send the agent's values to the runtime. The runtime later reports these
// values as if the kubelet had requested them. Only the saved record shows a restarted agent that these values are not
// requests of the kubelet.
func (cp *Checkpoint) AwaitSaved(ctx context.Context, id string) {
	for {
		cp.mu.Lock()
		waits, tryEnded := cp.unsavedChanges[id] > 0 && !cp.lastSaveFailed, cp.tryEnded
		cp.mu.Unlock()
		if !waits || tryEnded == nil {
			return
		}
		signal(cp.saveAtOnce)
		select {
		case <-tryEnded:
		case <-ctx.Done():
			return
		}
	}
}

// SetResizedRecord stores the current record of a container that was resized. If the container's CPUs changed,
// SaveChanges saves at once. If the agent were killed before the save, the next agent would restore the container's old
// CPUs.
func (cp *Checkpoint) SetResizedRecord(id string, r lifecycle.Record) {
	if before, _ := cp.Record(id); before.CPUs != r.CPUs {
		defer signal(cp.saveAtOnce)
	}
	cp.SetRecord(id, r)
}

// Record returns the stored record of a container.
func (cp *Checkpoint) Record(id string) (lifecycle.Record, bool) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	r, ok := cp.content.Containers[id]
	r.FromCheckpoint = true
	return r, ok
}

// SetOverlay stores the labels and annotations that hook servers added to a pod.
func (cp *Checkpoint) SetOverlay(id string, o Overlay) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.content.Pods[id] = o
	cp.markDirty()
}

// Overlay returns the labels and annotations that hook servers added to a pod.
func (cp *Checkpoint) Overlay(id string) (Overlay, bool) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	o, ok := cp.content.Pods[id]
	return o, ok
}

// Drop removes a container or pod that has ended.
func (cp *Checkpoint) Drop(id string) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.drop(id)
}

// drop removes a container or pod that has ended. The caller must hold mu.
func (cp *Checkpoint) drop(id string) {
	delete(cp.missingLists, id)
	delete(cp.unsavedChanges, id)
	_, late := cp.content.Containers[id]
	_, over := cp.content.Pods[id]
	if late || over {
		delete(cp.content.Containers, id)
		delete(cp.content.Pods, id)
		cp.markDirty()
	}
}

// maxMissingLists is how many consecutive lists of the runtime can lack a container without Prune dropping the
// container. If containerd 2.4 was killed and restarted, its list lacks containers whose shim does not answer in time.
// After another restart, containerd lists these containers again, with the agent's values in place of requested values.
const maxMissingLists = 3

// Prune drops containers and pods that are missing in more than maxMissingLists consecutive lists of the runtime. Such
// containers and pods ended while no agent ran. The parameter list is the current list (Synchronize).
func (cp *Checkpoint) Prune(list *lifecycle.Event) {
	lives := make(map[string]bool, len(list.Containers)+len(list.Pods))
	for _, ctr := range list.Containers {
		if ctr != nil {
			lives[ctr.ID] = true
		}
	}
	for _, p := range list.Pods {
		if p != nil {
			lives[p.ID] = true
		}
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	for _, id := range slices.AppendSeq(slices.Collect(maps.Keys(cp.content.Containers)), maps.Keys(cp.content.Pods)) {
		if lives[id] {
			delete(cp.missingLists, id)
		} else if cp.missingLists[id]++; cp.missingLists[id] > maxMissingLists {
			cp.drop(id)
		}
	}
}

// SetGrants stores the CPUs that pods own, by pod UID, and the UIDs of the pods that lend their CPUs.
func (cp *Checkpoint) SetGrants(now map[string]string, lent map[string]bool) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if !maps.Equal(now, cp.content.Grants) || !maps.Equal(lent, cp.content.Lent) {
		cp.content.Grants, cp.content.Lent = now, lent
		cp.markDirty()
	}
}

// SetBalloons stores the CPUs of each balloon, by name.
func (cp *Checkpoint) SetBalloons(now map[string]string) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if !maps.Equal(now, cp.content.Balloons) {
		cp.content.Balloons = now
		cp.markDirty()
	}
}

// SetDevices stores the exclusive CDI devices of containers, by pod UID and container name.
func (cp *Checkpoint) SetDevices(now map[string]map[string][]string) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if !reflect.DeepEqual(now, cp.content.Devices) {
		cp.content.Devices = now
		cp.markDirty()
	}
}

// Devices returns the exclusive CDI devices of containers, by pod UID and container name.
func (cp *Checkpoint) Devices() map[string]map[string][]string {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.content.Devices
}

// Balloons returns the CPUs of each balloon, by name.
func (cp *Checkpoint) Balloons() map[string]string {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.content.Balloons
}

// Grants returns the CPUs that pods own, by pod UID.
func (cp *Checkpoint) Grants() map[string]string {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.content.Grants
}

// Lent returns the UIDs of pods whose CPUs reclaimed containers may use.
func (cp *Checkpoint) Lent() map[string]bool {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.content.Lent
}

// markDirty notes that the checkpoint has unsaved changes, and wakes SaveChanges.
func (cp *Checkpoint) markDirty() {
	cp.dirty.Store(true)
	signal(cp.saveSoon)
}

// signal sends a signal to a channel with a buffer of one element. It does nothing if the buffer is full, because the
// channel then already has a signal that was not received yet.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Text returns the current checkpoint as JSON, and notes that it has no unsaved changes.
func (cp *Checkpoint) Text() []byte {
	cp.decisionLock.Lock()
	defer cp.decisionLock.Unlock()
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.dirty.Store(false)
	data, err := json.Marshal(cp.content)
	if err != nil {
		return nil // numbers and strings always marshal
	}
	return data
}

// saveDelay is the time between a change and its save. Changes in this time are saved together.
const saveDelay = 200 * time.Millisecond

// SaveChanges calls the function save with the checkpoint whenever the checkpoint has changed, until ctx ends. It does
// so saveDelay after a change, and at once after a signal on saveAtOnce. After a failure it tries again after a pause,
// which grows with each failure. During this pause it ignores saveAtOnce.
func (cp *Checkpoint) SaveChanges(ctx context.Context, save func([]byte) error) error {
	var retry statefile.Retry
	var due <-chan time.Time // nil while there is nothing to save
	cp.startNextTry(true)
	defer cp.startNextTry(false)
	for {
		select {
		case <-ctx.Done():
			return nil // the caller calls SaveNow after the last change
		case <-cp.saveSoon:
			if due == nil { // otherwise a save is already scheduled
				due = time.After(saveDelay)
			}
			continue
		case <-cp.saveAtOnce:
			if retry.Failed() {
				continue
			}
			due = nil
		case <-due:
			due = nil
		}
		if retry.SetResult(time.Now(), cp.save(save)); retry.Failed() {
			due = time.After(retry.WaitTime(time.Now()))
		}
		cp.startNextTry(true)
	}
}

// startNextTry wakes the callers of AwaitSaved, because an attempt to save has ended. SaveChanges calls it before the
// first attempt, after each attempt, and when SaveChanges itself ends. The parameter more is false only in this last
// call.
func (cp *Checkpoint) startNextTry(more bool) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.tryEnded != nil {
		close(cp.tryEnded)
	}
	if cp.tryEnded = nil; more {
		cp.tryEnded = make(chan struct{})
	}
}

// saveNowTries is how often SaveNow tries to save the checkpoint.
const saveNowTries = 3

// SaveNow saves the checkpoint at once if it has unsaved changes. The agent calls it when it ends.
func (cp *Checkpoint) SaveNow(save func([]byte) error) {
	for range saveNowTries {
		if cp.save(save) == nil {
			return
		}
	}
}

// save saves the checkpoint if it has unsaved changes.
func (cp *Checkpoint) save(save func([]byte) error) error {
	if !cp.dirty.Load() {
		return nil
	}
	cp.mu.Lock()
	last := cp.changeCount
	cp.mu.Unlock()
	err := save(cp.Text())
	cp.mu.Lock()
	if cp.lastSaveFailed = err != nil; !cp.lastSaveFailed {
		maps.DeleteFunc(cp.unsavedChanges, func(_ string, note uint64) bool { return note <= last })
	}
	cp.mu.Unlock()
	if err != nil {
		cp.dirty.Store(true)
		cp.log.Warn("the agent cannot save its checkpoint file; if the agent restarts now, the latest changes of containers are lost", logkey.Err, err)
	}
	return err
}
