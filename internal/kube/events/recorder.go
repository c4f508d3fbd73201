package events

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/report/api"
)

// About is the object that has an event.
type About struct {
	APIVersion string // "" for v1
	Kind       string
	Namespace  string // "" for objects without one
	Name       string
	// UID distinguishes objects with the same name. kubectl describe shows only events with the UID of the object.
	UID string
	// Version is the object's resource version, for an event that is the same on every node: the first node writes
	// the event for all nodes. It is "" for an event that each node writes itself.
	Version string
}

// The possible results of an event, which are values of a metric's label.
const (
	ResultWritten = "written" // this node has written the event, or another node has written the same event
	ResultLimited = "limited" // dropped: the object had too many events
	ResultFull    = "full"    // dropped: the queue was full, and a newer event took its place
	ResultRefused = "refused" // the API server refused the event
)

// Results returns all results.
func Results() []string { return []string{ResultWritten, ResultLimited, ResultFull, ResultRefused} }

const (
	// capacity bounds the number of events in the queue. The queue grows while the API server does not answer.
	capacity = 256
	// The recorder accepts objectBurst events of one object without a pause, and one more each objectInterval.
	objectBurst    = 10
	objectInterval = 5 * time.Minute
	// The recorder of a node writes nodeBurst events without a pause, and one more each writeInterval.
	nodeBurst     = 20
	writeInterval = 2 * time.Second
	// maxPause bounds the pause after a failure. maxMessage bounds the length of a message: the API server accepts 1024
	// bytes.
	maxPause   = 30 * time.Second
	maxMessage = 1024
)

// key identifies the events that the recorder merges into one event with a count.
type key struct {
	about  About
	reason Reason
}

// pendingEvent is an event that waits to be written.
type pendingEvent struct {
	key

	message     string
	count       int64
	first, last time.Time // when the first and the last of the merged events happened
}

// Recorder writes events. Its methods return at once.
type Recorder struct {
	client *kube.Client
	// now is the clock.
	now func() time.Time

	wake chan struct{} // wakes Run when the queue has an event

	mu      sync.Mutex        // guards the fields below
	queue   []*pendingEvent   // oldest first
	objects map[About]*bucket // limits the number of events of each object
	written map[string]int64  // the count in each Event object that was written, by the name of the Event object
	tally   map[string]uint64 // the number of events by result
	lastErr error             // the error of the last write; nil if it succeeded
}

// NewRecorder makes a recorder for a client's node.
func NewRecorder(c *kube.Client) *Recorder {
	r := &Recorder{
		client: c, now: time.Now, wake: make(chan struct{}, 1),
		objects: map[About]*bucket{}, written: map[string]int64{}, tally: map[string]uint64{},
	}
	for _, result := range Results() {
		r.tally[result] = 0
	}
	return r
}

// Warn adds an event of type Warning to the queue. If the queue already has an event with the same object
// and reason, Warn only changes the message of that event and increases its count.
func (r *Recorder) Warn(about About, reason Reason, text string) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	k := key{about, reason}
	for _, p := range r.queue {
		if p.key == k {
			p.message, p.last = shorten(text), now
			p.count++
			return
		}
	}
	if !r.takeToken(about, now) {
		r.tally[ResultLimited]++
		return
	}
	if len(r.queue) == capacity {
		r.queue = r.queue[1:]
		r.tally[ResultFull]++
	}
	r.queue = append(r.queue, &pendingEvent{key: k, message: shorten(text), count: 1, first: now, last: now})
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// AddLost counts n events that were dropped before they could reach Warn.
func (r *Recorder) AddLost(n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally[ResultFull] += n
}

// Counts returns the number of events by result.
func (r *Recorder) Counts() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]uint64, len(r.tally))
	for k, v := range r.tally {
		out[k] = v
	}
	return out
}

// Row returns the row for status.
func (r *Recorder) Row() api.ClusterPart {
	r.mu.Lock()
	defer r.mu.Unlock()
	row := api.ClusterPart{
		Name: "Events", State: fmt.Sprintf("%d events wait to be written", len(r.queue)),
		Written: r.tally[ResultWritten], Skipped: r.tally[ResultLimited], Failed: r.tally[ResultFull] + r.tally[ResultRefused],
	}
	if r.lastErr != nil {
		row.Error = r.lastErr.Error()
	}
	return row
}

// takeToken reports whether an object may have another event. If so, it takes a token of the object's bucket.
func (r *Recorder) takeToken(about About, now time.Time) bool {
	if len(r.objects) > 4*capacity { // drops the buckets of removed pods, and all other buckets that are full
		for a, b := range r.objects {
			if b.full(now) {
				delete(r.objects, a)
			}
		}
	}
	b := r.objects[about]
	if b == nil {
		b = &bucket{size: objectBurst, refillInterval: objectInterval, tokens: objectBurst, countedAt: now}
		r.objects[about] = b
	}
	return b.take(now)
}

// jitter returns a random duration between 75 % and 125 % of d, so that nodes that lost the connection to the API
// server at the same time do not retry at the same time.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + time.Duration(rand.Int64N(int64(d/2)+1))
}

// bucket is a token bucket: it limits how often events are recorded or written.
type bucket struct {
	size           int           // the largest number of tokens
	refillInterval time.Duration // the time after which the bucket gets one more token
	tokens         int
	countedAt      time.Time // the time up to which tokens were added
}

// fill adds the tokens for the time since countedAt.
func (b *bucket) fill(now time.Time) {
	if n := int(now.Sub(b.countedAt) / b.refillInterval); n > 0 {
		b.tokens, b.countedAt = min(b.size, b.tokens+n), b.countedAt.Add(time.Duration(n)*b.refillInterval)
	}
}

// take takes a token, or returns false if the bucket has no token.
func (b *bucket) take(now time.Time) bool {
	if b.fill(now); b.tokens == 0 {
		return false
	}
	b.tokens--
	return true
}

// full reports whether the bucket has all its tokens.
func (b *bucket) full(now time.Time) bool {
	b.fill(now)
	return b.tokens == b.size
}

// shorten cuts a message to the API server's limit, between characters.
func shorten(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	const dots = "..."
	cut := maxMessage - len(dots)
	for cut > 0 && text[cut]&0xc0 == 0x80 {
		cut--
	}
	return text[:cut] + dots
}
