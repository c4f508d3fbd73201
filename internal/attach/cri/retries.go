package cri

import (
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// firstRetry is the first pause before the agent asks the runtime again about a pod or container that it could not
// describe. lastRetry is the longest pause.
const firstRetry, lastRetry = time.Second, 30 * time.Second

// retries says when to ask the runtime again about pods and containers that it could not describe.
type retries struct {
	pauses *flowcontrol.Backoff // by id
	busy   sync.Map             // ids about which a request is running
}

func newRetries() *retries { return &retries{pauses: flowcontrol.NewBackOff(firstRetry, lastRetry)} }

// begin reports whether the next request about an id is due and no other one is running. If so, the caller must call
// end afterwards.
func (r *retries) begin(id string) bool {
	if r.pauses.IsInBackOffSinceUpdate(id, time.Now()) {
		return false
	}
	_, busy := r.busy.LoadOrStore(id, true)
	return !busy
}

func (r *retries) end(id string) { r.busy.Delete(id) }

// schedule schedules another request about a pod or container. The pause doubles each time.
func (r *retries) schedule(id string) { r.pauses.Next(id, time.Now()) }

// drop forgets the given ids, so that the next request about them is sent immediately.
func (r *retries) drop(ids ...string) {
	for _, id := range ids {
		r.pauses.DeleteEntry(id)
	}
}
