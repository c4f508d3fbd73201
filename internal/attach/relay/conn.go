package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/internal/attach/workerpool"
)

// Options are what a relayed connection is made of.
type Options struct {
	// Pick says which calls are held; nil holds none.
	Pick Pick
	// MaxMessage bounds the message of a held call, in bytes: a greater one
	// passes as it is. Default: 16 MiB, what the kubelet itself takes.
	MaxMessage int
	// Patience is how long one write to either end may take before the connection is
	// given up. Default: DefaultPatience.
	Patience time.Duration
	// Idle is how long the connection may be without a call before the caller is asked
	// to close it. Default: DefaultIdle.
	Idle time.Duration
}

// DefaultMaxMessage is the greatest message kubelet and runtimes take.
const DefaultMaxMessage = 16 << 20

// Conn is one caller's connection relayed to a backend.
type Conn struct {
	o       Options
	caller  side
	backend side
	// ctx ends with the connection, hooks run under it.
	ctx    context.Context
	cancel context.CancelFunc
	hooks  workerpool.Pool

	// last is the greatest stream the caller opened; only Drain reads it beside.
	last atomic.Uint32

	mu      sync.Mutex // guards all below; never held across I/O
	changed sync.Cond  // windows, stages, the end
	calls   map[uint32]*call
	spare   [][]byte // room that held messages have left, for the next
	flow    flow     // of the connection, towards the backend
	initial int64    // a new stream's window, as the backend said
	streams streams
	use     use
	// acks says for each SETTINGS frame the backend has not acknowledged whether
	// it was ours, and which call it ends.
	acks []*call

	drain   drain
	dead    bool
	stalled error // why a write ended the connection

	opening sync.Mutex // one compressed message is opened at a time
}

// drain is how far a connection is drained.
type drain struct {
	// closing: streams above limit are not relayed any more.
	closing bool
	limit   uint32
	why     string
	// greeted: the backend's first frames have gone to the caller, who takes no
	// other before them.
	greeted bool
}

// New makes a relayed connection of the two. Run serves and closes both.
func New(caller, backend net.Conn, o Options) *Conn {
	if o.MaxMessage <= 0 {
		o.MaxMessage = DefaultMaxMessage
	}
	if o.Patience <= 0 {
		o.Patience = DefaultPatience
	}
	if o.Idle <= 0 {
		o.Idle = DefaultIdle
	}
	if o.Pick == nil {
		o.Pick = func(string) Held { return Held{} }
	}
	c := &Conn{
		o: o, caller: side{Conn: caller, in: newReader(caller, o.Patience), blocks: newBlocks(), within: o.Patience},
		backend: side{Conn: backend, in: newReader(backend, o.Patience), blocks: newBlocks(), within: o.Patience},
		streams: streams{open: map[uint32]uint8{}, since: time.Now()},
		calls:   map[uint32]*call{}, flow: flow{avail: firstWindow}, initial: firstWindow,
	}
	c.changed.L = &c.mu
	c.caller.fail = func(err error) { c.unwritten("caller", err) }
	c.backend.fail = func(err error) { c.unwritten("backend", err) }
	return c
}

// Run relays until either end closes the connection, ctx ends, or a frame is
// malformed. It returns nil where the connection just ended, and when all hooks
// have returned.
func (c *Conn) Run(ctx context.Context) error {
	c.ctx, c.cancel = context.WithCancel(ctx)
	defer c.cancel()
	stop := context.AfterFunc(c.ctx, c.close)
	defer stop()

	var up, down error
	var both sync.WaitGroup
	first, same, err := c.caller.in.begins(preface)
	switch {
	case err != nil:
		up = c.protest(&direction{in: c.caller.in}, err)
	case same:
		both.Go(c.watch)
		both.Go(func() {
			defer c.close()
			down = c.relayDown()
		})
		up = c.relayUp(first)
	default:
		both.Go(func() { c.copy(&c.caller, c.backend.Conn) })
		if err := c.backend.write(first); err == nil {
			c.copy(&c.backend, c.caller.Conn)
		}
	}
	c.close()
	both.Wait()
	c.abandon()
	c.hooks.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(ended("caller", up), ended("backend", down), c.stalled)
}

// copy passes bytes of what is not HTTP/2, such as the HTTP/1 that CRI-O serves on the same
// socket.
func (c *Conn) copy(to *side, from net.Conn) {
	defer c.close()
	b := make([]byte, smallFrame)
	for {
		_ = from.SetReadDeadline(time.Now().Add(c.o.Idle)) // of a closed connection, which the read finds
		n, err := from.Read(b)
		if werr := to.write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

// unwritten ends the connection: a write to one end failed. That an end which is there
// did not read is worth a log line.
func (c *Conn) unwritten(who string, err error) {
	c.mu.Lock()
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.dead && c.stalled == nil {
		c.stalled = fmt.Errorf("%s reads nothing: %w", who, err)
	}
	c.mu.Unlock()
	c.close()
}

// close ends both connections and whatever waits for them.
func (c *Conn) close() {
	c.mu.Lock()
	first := !c.dead
	c.dead = true
	c.mu.Unlock()
	c.changed.Broadcast()
	if first {
		c.cancel()
		_ = c.caller.Close()
		_ = c.backend.Close()
	}
}

// Drain tells the caller to open no more calls on this connection: those it has
// go on, and it closes the connection after the last. Calls it opens meanwhile
// are safe for it to repeat on another connection. An end that reads nothing from
// then on is waited for a moment, and then its connection is closed.
func (c *Conn) Drain() { c.end("trimtab hands over") }

// end drains the connection for a reason.
func (c *Conn) end(why string) {
	c.caller.hurry()
	c.backend.hurry()
	c.caller.mu.Lock()
	defer c.caller.mu.Unlock()
	c.mu.Lock()
	again, greeted := c.drain.closing, c.drain.greeted
	c.drain.closing = true
	if !again {
		c.drain.limit, c.drain.why = c.last.Load(), why
	}
	c.mu.Unlock()
	if !again && greeted {
		_ = c.caller.writeLocked(appendGoAway(nil, c.drain.limit, codeNone, why))
	}
}

// greet hands the backend's first frames on, and what had to be kept back until
// then.
func (c *Conn) greet(first []byte) error {
	c.caller.mu.Lock()
	defer c.caller.mu.Unlock()
	c.mu.Lock()
	c.drain.greeted = true
	closing := c.drain.closing
	first = slices.Clip(first)
	for _, k := range c.calls {
		first = append(first, c.grants(k)...)
	}
	c.mu.Unlock()
	if closing {
		first = appendGoAway(first, c.drain.limit, codeNone, c.drain.why)
	}
	return c.caller.writeLocked(first)
}

// Holding reports whether a held call is not at its end.
func (c *Conn) Holding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.calls {
		if k.stage != over {
			return true
		}
	}
	return false
}

// abandon tells the hooks of calls that will never be answered.
func (c *Conn) abandon() {
	c.mu.Lock()
	var left []*call
	for id, k := range c.calls {
		left = append(left, k)
		delete(c.calls, id)
	}
	c.mu.Unlock()
	for _, k := range left {
		c.finish(k, Outcome{})
	}
}

// finish ends a call permanently. Where the hook still runs, its verdict finds the call
// over.
func (c *Conn) finish(k *call, o Outcome) {
	c.mu.Lock()
	k.stage = over
	c.forget(k)
	c.use.kept -= len(k.reply)
	k.reply = nil
	done, cancel := k.done, k.cancel
	k.done = nil
	o.Sent = k.sent
	c.mu.Unlock()
	c.changed.Broadcast()
	cancel()
	if done != nil {
		done(o)
	}
}

// ended tells the ways a connection just ends from those worth a log line.
func ended(who string, err error) error {
	if f := (*fault)(nil); !errors.As(err, &f) {
		return nil
	}
	return fmt.Errorf("%s: %w", who, err)
}
