package cri

import (
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// firstRetryPause is the first pause before the agent asks the runtime again about a pod or container that the runtime
// could not describe. maxRetryPause is the longest pause.
const firstRetryPause, maxRetryPause = time.Second, 30 * time.Second

// retries decides when to ask the runtime again about pods and containers that the runtime could not describe.
type retries struct {
	pauses *flowcontrol.Backoff // by id
	busy   sync.Map             // ids about which a request is running
}

func newRetries() *retries {
	return &retries{pauses: flowcontrol.NewBackOff(firstRetryPause, maxRetryPause)}
}

// begin reports whether the agent may send another request about an id: the pause has passed, and no other request
// about the id is running. If it returns true, the caller must call end after the request.
func (r *retries) begin(id string) bool {
	if r.pauses.IsInBackOffSinceUpdate(id, time.Now()) {
		return false
	}
	_, busy := r.busy.LoadOrStore(id, true)
	return !busy
}

// end notes that a request about an id has ended.
func (r *retries) end(id string) { r.busy.Delete(id) }

// schedule sets the pause before the next request about a pod or container. The pause doubles each time.
func (r *retries) schedule(id string) { r.pauses.Next(id, time.Now()) }

// endPause ends the pauses of these ids, so that the next request about them may be sent at once.
func (r *retries) endPause(ids ...string) {
	for _, id := range ids {
		r.pauses.DeleteEntry(id)
	}
}
