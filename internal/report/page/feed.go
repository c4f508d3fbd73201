package page

import (
	"context"
	"encoding/json"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/cpumap"
	"github.com/trimtab/trimtab/internal/report/usage"
)

const (
	// period is how often a stream sends the load of CPUs.
	period = 2 * time.Second
	// minInterval is the shortest time between two reads of the agent's state.
	minInterval = 500 * time.Millisecond
	// stale is how old a reading may become if no event happens, because values can change without an event.
	stale = 10 * time.Second
	// maxStreams is how many streams may be open, because each costs memory.
	maxStreams = 8
)

// Source is the agent's side of the page.
type Source interface {
	Status() api.Node
	// Explain returns the containers of a pod, or one of them.
	Explain(namespace, pod, container string) (found []api.Container, ok bool)
	// Events returns the events after a sequence number, and a channel that closes when there is another one.
	Events(ctx context.Context, since uint64) ([]api.Event, <-chan struct{})
}

// feed makes the messages of streams, once for all streams, and only while there is one. Its methods never write to
// a client.
type feed struct {
	src  Source
	name string // of the node
	proc fs.FS  // nil if its CPUs do not belong to this machine
	now  func() time.Time

	mu      sync.Mutex
	streams int
	current
}

// current is the state that the streams send; nil without a stream.
type current struct {
	seq     uint64 // of state
	readAt  time.Time
	more    <-chan struct{} // closed when an event happened after the reading
	node    api.Node
	state   state
	rows    map[string]row
	full    []byte // state as JSON; made when it is first needed
	changed []byte // what differs from seq-1

	usedAt  time.Time
	useSeq  uint64
	reading *usage.Reading
	use     []byte
}

// frame is the message that one stream must send now. Nil parts are left out.
type frame struct {
	full, changed, use []byte
	at                 mark
	more               <-chan struct{}
}

// mark is the last state that a stream has sent.
type mark struct{ state, use uint64 }

// join counts a stream. It returns false if too many are open.
func (f *feed) join() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams == maxStreams {
		return false
	}
	f.streams++
	return true
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams--; f.streams == 0 {
		f.current = current{}
	}
}

// status returns the node as the streams show it. Without streams it asks the agent.
func (f *feed) status(ctx context.Context) api.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams == 0 {
		return f.src.Status()
	}
	f.readState(ctx)
	return f.node
}

// frame returns what a stream with this mark has not sent yet.
func (f *feed) frame(ctx context.Context, sent mark) frame {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readState(ctx)
	f.readUse()
	out := frame{at: mark{f.seq, f.useSeq}, more: f.more}
	switch sent.state {
	case f.seq:
	case f.seq - 1:
		if out.changed = f.changed; sent.state == 0 {
			out.changed, out.full = nil, f.whole()
		}
	default:
		out.full = f.whole()
	}
	if sent.use != f.useSeq {
		out.use = f.use
	}
	return out
}

func (f *feed) whole() []byte {
	if f.full == nil {
		f.full = encode(f.state)
	}
	return f.full
}

// readState asks the agent if an event happened since the last time, or if that time is long ago.
func (f *feed) readState(ctx context.Context) {
	age := f.now().Sub(f.readAt)
	happened := f.seq == 0
	select {
	case <-f.more: // never, while it is nil
		happened = true
	default:
	}
	if f.seq > 0 && (age < minInterval || !happened && age < stale) {
		return
	}
	// We get the channel first: an event during the read of the state then closes it.
	_, f.more = f.src.Events(ctx, math.MaxUint64)
	f.node, f.readAt = f.src.Status(), f.now()
	f.replace(stateOf(f.name, f.node))
}

// replace stores a new state, and the differences from the state before.
func (f *feed) replace(s state) {
	c := change{Verdict: s.Verdict, Facts: s.Facts}
	rows := make(map[string]row, len(s.Rows))
	for _, r := range s.Rows {
		rows[r.ID] = r
		if before, known := f.rows[r.ID]; !known || before != r {
			c.Rows = append(c.Rows, r)
		}
	}
	for _, r := range f.state.Rows {
		if _, still := rows[r.ID]; !still {
			c.Gone = append(c.Gone, r.ID)
		}
	}
	machine := slices.EqualFunc(s.Map.Nodes, f.state.Map.Nodes, func(a, b numa) bool { return string(encode(a)) == string(encode(b)) })
	if !machine || !slices.Equal(s.Map.Users, f.state.Map.Users) || !slices.Equal(s.Map.Pools, f.state.Map.Pools) {
		c.Map = new(s.Map)
	}
	if machine && c.Map != nil {
		c.Map.Nodes = nil
	}
	same := f.seq > 0 && c.Map == nil && len(c.Rows)+len(c.Gone) == 0 && string(encode(s.Verdict)) == string(encode(f.state.Verdict)) &&
		slices.Equal(s.Facts, f.state.Facts)
	f.state, f.rows = s, rows
	if !same {
		f.seq++
		f.full, f.changed = nil, encode(c)
	}
}

// use is how busy CPUs are, and for what tasks wait.
type use struct {
	Busy     string `json:"busy"` // one character for each CPU from 0 on, see levels
	Pressure string `json:"pressure,omitempty"`
}

// levels are the characters of use, from idle to busy. "-" stands for a CPU without data.
const levels = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz012345678"

func (f *feed) readUse() {
	now := f.now()
	if f.use != nil && now.Sub(f.usedAt) < period-period/10 {
		return
	}
	f.usedAt, f.useSeq = now, f.useSeq+1
	f.use = encode(f.measure())
}

func (f *feed) measure() use {
	if f.proc == nil {
		return use{}
	}
	r, err := usage.Read(f.proc)
	if err != nil {
		return use{}
	}
	var u use
	var waits []string
	for _, p := range r.Pressure {
		waits = append(waits, p.String())
	}
	u.Pressure = strings.Join(waits, ", ")
	if f.reading != nil {
		u.Busy = busyText(r.Since(*f.reading), cpumap.CPUs(f.node.CPUs.Online))
	}
	f.reading = &r
	return u
}

func busyText(busy map[int]float64, online []int) string {
	if len(online) == 0 {
		return ""
	}
	text := []byte(strings.Repeat("-", online[len(online)-1]+1))
	for id, share := range busy {
		if id < len(text) {
			text[id] = levels[int(math.Round(share*float64(len(levels)-1)))]
		}
	}
	return string(text)
}

// encode writes JSON on one line, without text that HTML would read as a tag.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil { // cannot fail: all types belong to this package
		return []byte("{}")
	}
	return data
}
