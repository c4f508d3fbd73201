package record

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/statefile"
)

// Checkpoint stores what changed after containers were created and their records were written:
// later requests of the kubelet, containers that were narrowed without a record, and all
// records of containers that cannot carry one. If it is lost, no container moves; a release
// then restores older values.
type Checkpoint struct {
	log *slog.Logger
	// decision is the lock under which decisions change the checkpoint, so that no half of a
	// decision is saved.
	decision sync.Locker
	woken    chan struct{}
	dirty    atomic.Bool

	mu   sync.Mutex // guards all below
	held file[lifecycle.Record, Overlay]
	// missing counts how many lists of the runtime in a row left out a container or pod.
	missing map[string]int
}

// file is the stored form. When it is read, each container or pod is a json.RawMessage.
type file[R, P any] struct {
	Version    int          `json:"v"`
	Containers map[string]R `json:"containers"`
	// Grants are the CPUs by UID of the pod that owns them, also while the pod has no
	// container, between two attempts.
	Grants map[string]string `json:"grants"`
	// Balloons are the CPUs of each balloon, by name.
	Balloons map[string]string `json:"balloons,omitempty"`
	// Pods are hook servers' answers for pods, by sandbox id.
	Pods map[string]P `json:"pods,omitempty"`
}

// Overlay is what hook servers answered for a pod, if the runtime does not store it.
type Overlay struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Open reads a saved checkpoint; data may be empty. It logs the parts that cannot be read.
func Open(data []byte, decision sync.Locker, log *slog.Logger) *Checkpoint {
	held, unread, err := read(data)
	if err != nil {
		log.Warn("the agent ignores the checkpoint and uses only the runtime's records", logkey.Err, err)
	}
	for _, err := range unread {
		log.Warn("the agent ignores a part of the checkpoint; for this container or pod it uses only the runtime's record", logkey.Err, err)
	}
	return &Checkpoint{log: log, decision: decision, held: held, missing: map[string]int{}, woken: make(chan struct{}, 1)}
}

// Check returns an error if a saved checkpoint cannot be read, so that the caller can rename
// the file.
func Check(data []byte) error {
	_, _, err := read(data)
	return err
}

// read decodes a checkpoint; unread are the errors of parts that cannot be read.
func read(data []byte) (held file[lifecycle.Record, Overlay], unread []error, err error) {
	held = file[lifecycle.Record, Overlay]{Version: 1, Containers: map[string]lifecycle.Record{}, Pods: map[string]Overlay{}}
	if len(data) == 0 {
		return held, nil, nil
	}
	var f file[json.RawMessage, json.RawMessage]
	if err := json.Unmarshal(data, &f); err != nil {
		return held, nil, fmt.Errorf("read checkpoint: %w", err)
	}
	if f.Version != 1 {
		return held, nil, fmt.Errorf("read checkpoint: version %d is unknown", f.Version)
	}
	held.Grants, held.Balloons = f.Grants, f.Balloons
	return held, append(readEach(held.Containers, f.Containers), readEach(held.Pods, f.Pods)...), nil
}

// readEach decodes each container or pod. One that cannot be read does not affect the others.
func readEach[V any](into map[string]V, texts map[string]json.RawMessage) (unread []error) {
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

// Note stores what a release would restore for a container now.
func (cp *Checkpoint) Note(id string, r lifecycle.Record) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.held.Containers[id] = r.Storable()
	cp.mark()
}

// Record returns what is stored about a container.
func (cp *Checkpoint) Record(id string) (lifecycle.Record, bool) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	r, ok := cp.held.Containers[id]
	r.Late = true
	return r, ok
}

// NotePod stores what hook servers answered for a pod.
func (cp *Checkpoint) NotePod(id string, o Overlay) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.held.Pods[id] = o
	cp.mark()
}

// Overlay returns what hook servers answered for a pod.
func (cp *Checkpoint) Overlay(id string) (Overlay, bool) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	o, ok := cp.held.Pods[id]
	return o, ok
}

// Drop removes a container or pod that has ended.
func (cp *Checkpoint) Drop(id string) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.drop(id)
}

func (cp *Checkpoint) drop(id string) {
	delete(cp.missing, id)
	_, late := cp.held.Containers[id]
	_, over := cp.held.Pods[id]
	if late || over {
		delete(cp.held.Containers, id)
		delete(cp.held.Pods, id)
		cp.mark()
	}
}

// maxMissing is how many lists in a row may leave out a container before it is dropped. A
// runtime that was killed leaves out containers whose shim does not answer in time (containerd
// 2.4). It reports them after its next restart, and then our values look like requests.
const maxMissing = 3

// Prune drops containers and pods that the runtime's lists left out too often, because they
// ended while no agent ran.
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
	for _, id := range slices.AppendSeq(slices.Collect(maps.Keys(cp.held.Containers)), maps.Keys(cp.held.Pods)) {
		if lives[id] {
			delete(cp.missing, id)
		} else if cp.missing[id]++; cp.missing[id] > maxMissing {
			cp.drop(id)
		}
	}
}

// SetGrants stores who owns CPUs, if that changed.
func (cp *Checkpoint) SetGrants(now map[string]string) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if !maps.Equal(now, cp.held.Grants) {
		cp.held.Grants = now
		cp.mark()
	}
}

// SetBalloons stores the CPUs of balloons, if they changed.
func (cp *Checkpoint) SetBalloons(now map[string]string) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if !maps.Equal(now, cp.held.Balloons) {
		cp.held.Balloons = now
		cp.mark()
	}
}

// Balloons are the CPUs of each balloon, by name.
func (cp *Checkpoint) Balloons() map[string]string {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.held.Balloons
}

// Grants are the CPUs by the UID of the pod that owns them.
func (cp *Checkpoint) Grants() map[string]string {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.held.Grants
}

func (cp *Checkpoint) mark() {
	cp.dirty.Store(true)
	select {
	case cp.woken <- struct{}{}:
	default:
	}
}

// Text returns the current checkpoint.
func (cp *Checkpoint) Text() []byte {
	cp.decision.Lock()
	defer cp.decision.Unlock()
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.dirty.Store(false)
	data, err := json.Marshal(cp.held)
	if err != nil {
		return nil // numbers and strings always marshal
	}
	return data
}

// delay combines changes that follow each other closely into one save.
const delay = 200 * time.Millisecond

// Keep saves a changed checkpoint a moment after the change, outside of the request path, until
// ctx ends. After a failure it tries again, after a growing pause.
func (cp *Checkpoint) Keep(ctx context.Context, save func([]byte) error) error {
	var retry statefile.Retry
	var due <-chan time.Time // nil while there is nothing to save
	for {
		select {
		case <-ctx.Done():
			return nil // Finish saves when nothing changes any more
		case <-cp.woken:
			if due == nil { // otherwise the next try saves this, too
				due = time.After(delay)
			}
			continue
		case <-due:
			due = nil
		}
		if retry.Note(time.Now(), cp.save(save)); retry.Failed() {
			due = time.After(retry.Wait(time.Now()))
		}
	}
}

// lastTries is how often a clean end tries to save a checkpoint.
const lastTries = 3

// Finish saves the checkpoint at a clean end, if it is not saved yet. Nothing changes it any
// more.
func (cp *Checkpoint) Finish(save func([]byte) error) {
	for range lastTries {
		if cp.save(save) == nil {
			return
		}
	}
}

func (cp *Checkpoint) save(save func([]byte) error) error {
	if !cp.dirty.Load() {
		return nil
	}
	err := save(cp.Text())
	if err != nil {
		cp.dirty.Store(true)
		cp.log.Warn("the agent cannot save the checkpoint; a restart would lose some later changes", logkey.Err, err)
	}
	return err
}
