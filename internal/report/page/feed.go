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
	// loadInterval is the time between two messages of a stream about the load of the CPUs.
	loadInterval = 2 * time.Second
	// minInterval is the shortest time between two reads of the agent's state.
	minInterval = 500 * time.Millisecond
	// maxAge is the age at which the feed reads the agent's state again although no event happened: values can change
	// without an event.
	maxAge = 10 * time.Second
	// maxStreams is how many streams may be open at the same time. Each stream costs memory.
	maxStreams = 8
)

// Source is what the page reads from the agent.
type Source interface {
	// Status returns the state of the whole node.
	Status() api.Node
	// Explain returns all containers of a pod, or one container if container is not "".
	Explain(namespace, pod, container string) (found []api.Container, ok bool)
	// Events returns the events after sequence number since, and a channel that closes at the next event.
	Events(ctx context.Context, since uint64) ([]api.Event, <-chan struct{})
}

// feed builds each message once for all streams. It builds messages only while a stream is open. Its methods never
// write to a client.
type feed struct {
	src  Source
	name string // the node's name
	proc fs.FS  // the node's /proc; nil if the CPUs of the node are not those of this machine
	now  func() time.Time

	mu      sync.Mutex // guards the fields below
	streams int        // the number of open streams
	streamedState
}

// streamedState is the state that the streams send. It is empty while no stream is open.
type streamedState struct {
	seq       uint64          // sequence number of state
	readAt    time.Time       // when node was read from the agent
	nextEvent <-chan struct{} // closed when an event happened after node was read
	node      api.Node
	state     state          // what the page shows of node
	rows      map[string]row // the rows of state, by row id
	full      []byte         // state as JSON; encoded when it is first needed
	changed   []byte         // the change from state seq-1 to state seq, as JSON

	loadAt      time.Time      // when load was measured
	loadSeq     uint64         // sequence number of load
	lastReading *usage.Reading // the CPU counters of the last measurement; nil before the first measurement
	load        []byte         // how busy the CPUs are, as JSON
}

// frame is the message that one stream must send now: the full state or the last change of the state, and the load of
// the CPUs. A stream does not send what is nil.
type frame struct {
	full, changed, load []byte
	at                  position        // the position of the stream after it has sent the frame
	nextEvent           <-chan struct{} // closed at the next event
}

// position has the sequence numbers of the last state and of the last load that a stream has sent.
type position struct{ state, load uint64 }

// openStream registers a new stream. It returns false if too many streams are open.
func (f *feed) openStream() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams == maxStreams {
		return false
	}
	f.streams++
	return true
}

// closeStream removes a stream. If no stream is open then, it deletes the state.
func (f *feed) closeStream() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams--; f.streams == 0 {
		f.streamedState = streamedState{}
	}
}

// status returns the state of the node that the streams show. If no stream is open, it reads the state from the agent.
func (f *feed) status(ctx context.Context) api.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams == 0 {
		return f.src.Status()
	}
	f.readState(ctx)
	return f.node
}

// frame returns the message that a stream must send next. The parameter sent is the position of the stream.
func (f *feed) frame(ctx context.Context, sent position) frame {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readState(ctx)
	f.readLoad()
	out := frame{at: position{f.seq, f.loadSeq}, nextEvent: f.nextEvent}
	switch sent.state {
	case f.seq:
	case f.seq - 1:
		if out.changed = f.changed; sent.state == 0 {
			out.changed, out.full = nil, f.fullState()
		}
	default:
		out.full = f.fullState()
	}
	if sent.load != f.loadSeq {
		out.load = f.load
	}
	return out
}

// fullState returns the state as JSON.
func (f *feed) fullState() []byte {
	if f.full == nil {
		f.full = encode(f.state)
	}
	return f.full
}

// readState reads the agent's state if an event happened since the last read, or if the last read is maxAge ago. It
// does nothing if the last read is less than minInterval ago.
func (f *feed) readState(ctx context.Context) {
	age := f.now().Sub(f.readAt)
	happened := f.seq == 0
	select {
	case <-f.nextEvent: // never happens while nextEvent is nil
		happened = true
	default:
	}
	if f.seq > 0 && (age < minInterval || !happened && age < maxAge) {
		return
	}
	// We get the channel before the state, so that an event during the read of the state closes the channel.
	_, f.nextEvent = f.src.Events(ctx, math.MaxUint64)
	f.node, f.readAt = f.src.Status(), f.now()
	f.storeState(stateOf(f.name, f.node))
}

// storeState stores a new state, and how it differs from the previous state.
func (f *feed) storeState(s state) {
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
			c.RemovedRows = append(c.RemovedRows, r.ID)
		}
	}
	sameNodes := slices.EqualFunc(s.Map.Nodes, f.state.Map.Nodes, func(a, b numa) bool { return string(encode(a)) == string(encode(b)) })
	if !sameNodes || !slices.Equal(s.Map.Users, f.state.Map.Users) || !slices.Equal(s.Map.Pools, f.state.Map.Pools) {
		c.Map = new(s.Map)
	}
	if sameNodes && c.Map != nil {
		c.Map.Nodes = nil
	}
	same := f.seq > 0 && c.Map == nil && len(c.Rows)+len(c.RemovedRows) == 0 && string(encode(s.Verdict)) == string(encode(f.state.Verdict)) &&
		slices.Equal(s.Facts, f.state.Facts)
	f.state, f.rows = s, rows
	if !same {
		f.seq++
		f.full, f.changed = nil, encode(c)
	}
}

// cpuLoad is how busy the CPUs are, and the node's pressure (PSI).
type cpuLoad struct {
	Busy     string `json:"busy"`               // a character of loadLevels for each CPU, from CPU 0 to the last online CPU
	Pressure string `json:"pressure,omitempty"` // the node's pressure as text for users; "" if it is unknown
}

// loadLevels are the characters for the load of a CPU, from idle to busy. A CPU without data has "-".
const loadLevels = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz012345678"

// readLoad measures the load of the CPUs again if the last measurement is at least nine tenths of loadInterval ago.
func (f *feed) readLoad() {
	now := f.now()
	if f.load != nil && now.Sub(f.loadAt) < loadInterval-loadInterval/10 {
		return
	}
	f.loadAt, f.loadSeq = now, f.loadSeq+1
	f.load = encode(f.measureLoad())
}

// measureLoad reads the CPU counters and the pressure of the node. Busy is the mean load since the last measurement, so
// the first measurement does not have it.
func (f *feed) measureLoad() cpuLoad {
	if f.proc == nil {
		return cpuLoad{}
	}
	r, err := usage.Read(f.proc)
	if err != nil {
		return cpuLoad{}
	}
	var u cpuLoad
	var waits []string
	for _, p := range r.Pressure {
		waits = append(waits, p.String())
	}
	u.Pressure = strings.Join(waits, ", ")
	if f.lastReading != nil {
		u.Busy = busyText(r.BusySince(*f.lastReading), cpumap.CPUs(f.node.CPUs.Online))
	}
	f.lastReading = &r
	return u
}

// busyText returns the text of cpuLoad.Busy. The map busy has a number from 0 (idle) to 1 for each CPU.
func busyText(busy map[int]float64, online []int) string {
	if len(online) == 0 {
		return ""
	}
	text := []byte(strings.Repeat("-", online[len(online)-1]+1))
	for id, share := range busy {
		if id < len(text) {
			text[id] = loadLevels[int(math.Round(share*float64(len(loadLevels)-1)))]
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
