package conductor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/statefile"
)

// checkpoint holds what came after containers were created and their records
// were stamped: what the kubelet asked for since, and containers that were
// narrowed without a record; and all records of containers that no attachment
// could stamp. It is small, and losing it moves nothing by itself: what is lost
// is what such containers return to.
type checkpoint struct {
	late map[string]record
	// missing counts in how many lists running the runtime left out one of them.
	missing map[string]int
	// grants are CPUs by the UID of the pod that owns them, also while it has
	// no container, between two attempts.
	grants map[string]string
	// pods are what was wanted from outside of pods, by sandbox id.
	pods map[string]podOverlay
	// unread are why some of what was saved cannot be read.
	unread []error
	dirty  bool
	woken  chan struct{}
}

// checkpointFile is the stored form; read, a container or pod is a json.RawMessage.
type checkpointFile[R, P any] struct {
	Version    int               `json:"v"`
	Containers map[string]R      `json:"containers"`
	Grants     map[string]string `json:"grants"`
	// Pods are what was wanted from outside of pods, by sandbox id.
	Pods map[string]P `json:"pods,omitempty"`
}

// checkpointDelay coalesces changes that come close together.
const checkpointDelay = 200 * time.Millisecond

func newCheckpoint(data []byte) (checkpoint, error) {
	cp := checkpoint{late: map[string]record{}, missing: map[string]int{}, woken: make(chan struct{}, 1)}
	if len(data) == 0 {
		return cp, nil
	}
	var f checkpointFile[json.RawMessage, json.RawMessage]
	if err := json.Unmarshal(data, &f); err != nil {
		return cp, fmt.Errorf("read checkpoint: %w", err)
	}
	if f.Version != 1 {
		return cp, fmt.Errorf("read checkpoint: version %d is unknown", f.Version)
	}
	cp.grants = f.Grants
	cp.late, cp.pods = map[string]record{}, nil
	for id, text := range f.Containers {
		readEach(&cp.late, &cp.unread, id, text)
	}
	for id, text := range f.Pods {
		readEach(&cp.pods, &cp.unread, id, text)
	}
	return cp, nil
}

// readEach reads what is kept of one container or pod; one that cannot be read loses
// none of the others.
func readEach[V any](into *map[string]V, unread *[]error, id string, text json.RawMessage) {
	var v V
	if err := json.Unmarshal(text, &v); err != nil {
		*unread = append(*unread, fmt.Errorf("checkpoint of %s: %w", id, err))
		return
	}
	put(into, id, v)
}

// note keeps what a container would return to now.
func (cp *checkpoint) note(r record, id string) {
	cp.late[id] = r
	cp.mark()
}

func (cp *checkpoint) drop(id string) {
	delete(cp.missing, id)
	_, late := cp.late[id]
	_, over := cp.pods[id]
	if late || over {
		delete(cp.late, id)
		delete(cp.pods, id)
		cp.mark()
	}
}

// maxMissing is how many lists in a row may leave out a container before what is kept of it is dropped. A runtime that was
// killed leaves out those whose shim does not answer in time (containerd 2.4), tells of them after its next restart, and
// then as asked for what we had decided.
const maxMissing = 3

// prune drops what is kept of containers and pods that no longer are: they went while
// nobody looked.
func (c *Conductor) prune(ev *lifecycle.Event) {
	lives := make(map[string]bool, len(ev.Containers)+len(ev.Pods))
	for _, ctr := range ev.Containers {
		if ctr != nil {
			lives[ctr.ID] = true
		}
	}
	for _, p := range ev.Pods {
		if p != nil {
			lives[p.ID] = true
		}
	}
	for _, known := range [][]string{slices.Collect(maps.Keys(c.late.late)), slices.Collect(maps.Keys(c.late.pods))} {
		for _, id := range known {
			if lives[id] {
				delete(c.late.missing, id)
			} else if c.late.missing[id]++; c.late.missing[id] > maxMissing {
				c.late.drop(id)
			}
		}
	}
}

func (cp *checkpoint) mark() {
	cp.dirty = true
	select {
	case cp.woken <- struct{}{}:
	default:
	}
}

// noteGrants keeps who owns CPUs, where that changed.
func (c *Conductor) noteGrants() {
	now := map[string]string{}
	for uid, cpus := range c.state.Held() {
		now[uid] = c.state.Machine.Format(cpus)
	}
	if !maps.Equal(now, c.late.grants) {
		c.late.grants = now
		c.late.mark()
	}
}

func (c *Conductor) lateGrants() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late.grants
}

func (c *Conductor) lateRecord(id string) (engine.Record, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.late.late[id]
	return r.engine(), ok
}

// Checkpoint returns the checkpoint as it is now.
func (c *Conductor) Checkpoint() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late.dirty = false
	data, err := json.Marshal(checkpointFile[record, podOverlay]{Version: 1, Containers: c.late.late, Grants: c.late.grants, Pods: c.late.pods})
	if err != nil {
		return nil // numbers and strings always marshal
	}
	return data
}

// CheckCheckpoint says what is wrong with a checkpoint that was saved, so that it
// can be put aside.
func CheckCheckpoint(data []byte) error {
	_, err := newCheckpoint(data)
	return err
}

// SaveCheckpoints hands changed checkpoints to save, a moment after they
// changed and off the request path, until ctx ends. One that could not be saved is
// saved again after a pause that grows.
func (c *Conductor) SaveCheckpoints(ctx context.Context, save func([]byte) error) error {
	var retry statefile.Retry
	for {
		again := time.NewTimer(retry.Wait(time.Now()))
		if !retry.Failed() {
			again.Stop()
		}
		select {
		case <-ctx.Done():
			again.Stop()
			return nil // SaveCheckpoint follows, once nothing changes any more
		case <-again.C:
		case <-c.late.woken:
			again.Stop()
			if retry.Failed() {
				continue // the next try takes this along
			}
			timer := time.NewTimer(checkpointDelay)
			select {
			case <-ctx.Done():
				timer.Stop()
			case <-timer.C:
			}
		}
		retry.Note(time.Now(), c.save(save))
	}
}

// lastTries is how often a clean end tries to save a checkpoint.
const lastTries = 3

// SaveCheckpoint hands the checkpoint to save at a clean end, when nothing changes
// it any more, where it is not saved yet.
func (c *Conductor) SaveCheckpoint(save func([]byte) error) {
	for range lastTries {
		if c.save(save) == nil {
			return
		}
	}
}

func (c *Conductor) save(save func([]byte) error) error {
	c.mu.Lock()
	dirty := c.late.dirty
	c.mu.Unlock()
	if !dirty {
		return nil
	}
	err := save(c.Checkpoint())
	if err != nil {
		c.mu.Lock()
		c.late.dirty = true
		c.mu.Unlock()
		c.log.Warn("the checkpoint is not saved; a restart would know less of later changes", logkey.Err, err)
	}
	return err
}
