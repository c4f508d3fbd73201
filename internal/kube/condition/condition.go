// Package condition writes the condition TrimtabReady into the node's Node object. The condition says whether the agent
// works, and if not, why.
package condition

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// Type is the condition's type. The chart's admission policy lets an agent write only conditions of this type.
const Type = "TrimtabReady"

// The reasons of the condition.
const (
	Ready                = "Ready"
	NotReady             = "NotReady"
	ConfigurationRefused = "ConfigurationRefused" // the agent is ready, but uses the last valid configuration
	Stopped              = "AgentStopped"
)

// State is the content of the condition. The zero value means that the Node should not have the condition.
type State struct {
	Status  string // True, False or Unknown
	Reason  string
	Message string
}

// Timing says when the keeper writes the condition.
type Timing struct {
	// Poll is how often the keeper reads the state.
	Poll time.Duration
	// MaxStartWait limits the random wait before the first write. MaxChangeWait limits the random wait before each later
	// write. The waits prevent a thousand nodes from writing at the same time.
	MaxStartWait, MaxChangeWait time.Duration
	// Heartbeat is how often the keeper writes the condition if it does not change.
	Heartbeat time.Duration
}

// DefaultTiming returns the timing that the agent uses.
func DefaultTiming() Timing {
	return Timing{Poll: 2 * time.Second, MaxStartWait: 30 * time.Second, MaxChangeWait: 4 * time.Second, Heartbeat: 10 * time.Minute}
}

// Keeper writes the condition.
type Keeper struct {
	client    *kube.Client
	state     func() State
	timing    Timing
	writeLock chan struct{} // of capacity 1: the goroutine that writes the condition holds it

	mu             sync.Mutex // guards the fields below
	written        State      // the condition that the Node has, as far as the keeper knows
	writtenAt      time.Time  // the time of the last successful write; zero for none
	transitionTime string     // the condition's lastTransitionTime
	writes         uint64     // the number of successful writes
	lastErr        error      // the error of the last write; nil if it succeeded
	// failures counts the writes that failed.
	failures uint64
}

// New makes a keeper of the condition. The function state returns the present content, and must not block.
func New(c *kube.Client, state func() State, t Timing) *Keeper {
	return &Keeper{client: c, state: state, timing: t, writeLock: make(chan struct{}, 1)}
}

// nodes names the resource of Node objects for requests to the API server.
var nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}

// maxPause limits the pause after a failed write. maxMessage limits the length of the condition's message, in bytes.
const (
	maxPause   = 30 * time.Second
	maxMessage = 1024
)

// Run writes the condition until ctx ends. At the end, if the Node has the condition, Run tries for one second to write
// into it that the agent stopped.
func (k *Keeper) Run(ctx context.Context) {
	if !sleep.For(ctx, randomDuration(k.timing.MaxStartWait)) {
		return
	}
	pause := time.Duration(0)
	heartbeat := k.timing.Heartbeat + randomDuration(k.timing.Heartbeat/10)
	for sleep.For(ctx, max(k.timing.Poll, pause)) {
		now := k.state()
		if !k.mustWrite(now, heartbeat) {
			continue
		}
		if pause == 0 && k.hasWritten() && !sleep.For(ctx, randomDuration(k.timing.MaxChangeWait)) {
			break
		}
		if err := k.write(ctx, k.state); err != nil {
			pause = min(max(time.Second, 2*pause), maxPause)
			pause += randomDuration(pause / 2)
			continue
		}
		pause = 0
	}
	if k.hasWritten() && k.hasCondition() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = k.write(end, func() State {
			if k.state() == (State{}) {
				return State{}
			}
			return State{Status: "Unknown", Reason: Stopped, Message: "the agent of this node was stopped; containers keep their values"}
		})
	}
}

// Release removes the condition now, if the state is the zero value. This is the case after `trimtab release`.
func (k *Keeper) Release(ctx context.Context) error {
	if k.state() != (State{}) {
		return nil
	}
	if err := k.write(ctx, k.state); err != nil {
		return fmt.Errorf("remove the node condition %s: %w", Type, err)
	}
	return nil
}

// mustWrite reports whether the keeper must write a state, because the state is new or the last write is older than the
// heartbeat interval.
func (k *Keeper) mustWrite(now State, heartbeat time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.writtenAt.IsZero() || shortenMessage(now) != k.written || time.Since(k.writtenAt) >= heartbeat
}

// hasWritten reports whether the keeper has written the condition since the agent's start.
func (k *Keeper) hasWritten() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.writtenAt.IsZero()
}

// hasCondition reports whether the Node has the condition, according to the last write.
func (k *Keeper) hasCondition() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.written != State{}
}

// write locks writeLock, calls state and writes the result.
func (k *Keeper) write(ctx context.Context, state func() State) error {
	select {
	case k.writeLock <- struct{}{}:
		defer func() { <-k.writeLock }()
	case <-ctx.Done():
		return ctx.Err()
	}
	s := shortenMessage(state())
	err := k.patchCondition(ctx, s)
	k.client.RecordResult(err)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.written, k.writtenAt = s, time.Now()
		k.writes++
	}
	if err != nil {
		k.failures++
	}
	if err != nil && k.lastErr == nil {
		k.client.Log.Warn("the agent cannot write the node's condition", logkey.Err, err)
	}
	k.lastErr = err
	return err
}

// patchCondition sends the condition to the API server. If s is the zero value, it removes the condition.
func (k *Keeper) patchCondition(ctx context.Context, s State) error {
	now := kube.FormatTime(time.Now())
	if err := k.readCondition(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	if k.written.Status != s.Status || k.transitionTime == "" {
		k.transitionTime = now
	}
	since := k.transitionTime
	k.mu.Unlock()
	condition := map[string]any{
		"type": Type, "status": s.Status, "reason": s.Reason, "message": s.Message,
		"lastHeartbeatTime": now, "lastTransitionTime": since,
	}
	if s.Status == "" {
		condition = map[string]any{"type": Type, "$patch": "delete"}
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{condition}}})
	if err != nil {
		return err
	}
	_, err = k.client.Dynamic.Resource(nodes).Patch(ctx, k.client.Node, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// readCondition reads the condition that an earlier agent wrote. After the first write, it does nothing.
func (k *Keeper) readCondition(ctx context.Context) error {
	if k.hasWritten() {
		return nil
	}
	node, err := k.client.Dynamic.Resource(nodes).Get(ctx, k.client.Node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	all, _, _ := unstructured.NestedSlice(node.Object, "status", "conditions")
	for _, c := range all {
		if m, ok := c.(map[string]any); ok && m["type"] == Type {
			k.mu.Lock()
			k.written.Status, _ = m["status"].(string)
			k.transitionTime, _ = m["lastTransitionTime"].(string)
			k.mu.Unlock()
		}
	}
	return nil
}

// Row returns the row about the condition for status.
func (k *Keeper) Row() api.ClusterPart {
	k.mu.Lock()
	defer k.mu.Unlock()
	row := api.ClusterPart{Name: "NodeCondition", State: "not written yet", Written: k.writes, Failed: k.failures}
	switch {
	case k.writtenAt.IsZero():
	case k.written == State{}:
		row.State = "removed"
	default:
		row.State = Type + " is " + k.written.Status + " (" + k.written.Reason + ")"
	}
	if k.lastErr != nil {
		row.Error = k.lastErr.Error()
	}
	return row
}

// shortenMessage shortens a state's message to the longest allowed length.
func shortenMessage(s State) State {
	if len(s.Message) > maxMessage {
		s.Message = s.Message[:maxMessage-3] + "..."
	}
	return s
}

// randomDuration returns a random duration below d; 0 if d is not positive.
func randomDuration(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}
