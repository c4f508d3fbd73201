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
	// UID distinguishes objects with the same name. kubectl describe shows no event without it.
	UID string
	// Version is the object's resource version, for an event that is the same on every node: then one event is
	// enough for all nodes, and the first node writes it. It is "" for an event of each node.
	Version string
}

// Results are the possible results of an event, as the label of a metric.
const (
	ResultWritten = "written" // or another node has written the same event
	ResultLimited = "limited" // an object had too many
	ResultFull    = "full"    // newer events took its place in the queue
	ResultRefused = "refused" // by the API server
)

// Results returns all results.
func Results() []string { return []string{ResultWritten, ResultLimited, ResultFull, ResultRefused} }

const (
	// capacity bounds the events that wait while the API server does not answer.
	capacity = 256
	// An object may have this many events without a pause, and one more each objectInterval.
	objectBurst    = 10
	objectInterval = 5 * time.Minute
	// A node may write this many events without a pause, and one more each writeInterval.
	nodeBurst     = 20
	writeInterval = 2 * time.Second
	// maxPause bounds the pause after a failure. maxMessage bounds the length of a message: the API server accepts 1024
	// bytes.
	maxPause   = 30 * time.Second
	maxMessage = 1024
)

// key identifies events that are merged into one with a count.
type key struct {
	about  About
	reason Reason
}

// pendingEvent is an event that waits to be written.
type pendingEvent struct {
	key

	message     string
	count       int64
	first, last time.Time
}

// Recorder writes events. Its methods return at once.
type Recorder struct {
	client *kube.Client
	// now is the clock.
	now func() time.Time

	wake chan struct{} // of capacity 1

	mu      sync.Mutex      // guards the fields below
	queue   []*pendingEvent // oldest first
	objects map[About]*bucket
	written map[string]int64 // counts of the event objects that were written, by name
	tally   map[string]uint64
	lastErr error // the error of the last write
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

// Warn records an event of type Warning. If an event with the same object and reason
// still waits, it gets this message and its count grows.
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

// AddLost counts events that were dropped before a call of Warn.
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

// takeToken reports whether an object may have another event, and counts that event.
func (r *Recorder) takeToken(about About, now time.Time) bool {
	if len(r.objects) > 4*capacity { // this includes objects of removed pods
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

// jitter returns a duration between 75 % and 125 % of d. Nodes that lost the API server at the same time therefore
// do not retry at the same time.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + time.Duration(rand.Int64N(int64(d/2)+1))
}

// bucket is a token bucket: it limits how often events are recorded or written.
type bucket struct {
	size           int
	refillInterval time.Duration
	tokens         int
	countedAt      time.Time // the time when tokens was counted
}

// fill adds the tokens for the time since the last call.
func (b *bucket) fill(now time.Time) {
	if n := int(now.Sub(b.countedAt) / b.refillInterval); n > 0 {
		b.tokens, b.countedAt = min(b.size, b.tokens+n), b.countedAt.Add(time.Duration(n)*b.refillInterval)
	}
}

// take takes a token; it returns false if there is none.
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
