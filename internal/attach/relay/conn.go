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

// Options configure a relayed connection.
type Options struct {
	// Pick says which calls are held; nil holds none.
	Pick Pick
	// MaxMessage bounds the message of a held call, in bytes. A longer one passes
	// unchanged. Default: 16 MiB, the kubelet's own limit.
	MaxMessage int
	// WriteTimeout is how long one write to either end may take before the connection is
	// closed. Default: DefaultWriteTimeout.
	WriteTimeout time.Duration
	// Idle is how long the connection may have no call before the caller is asked to close
	// it. Default: DefaultIdle.
	Idle time.Duration
}

// DefaultMaxMessage is the longest message that kubelet and runtimes accept.
const DefaultMaxMessage = 16 << 20

// Conn is one caller's connection, which the relay forwards to a backend.
type Conn struct {
	o       Options
	caller  side
	backend side
	// ctx ends with the connection; hooks run with it.
	ctx    context.Context
	cancel context.CancelFunc
	hooks  workerpool.Pool

	// last is the highest stream that the caller opened. Only the goroutine that reads the caller writes it, and
	// only Drain reads it too.
	last atomic.Uint32

	mu      sync.Mutex // guards all below; never held across I/O
	changed sync.Cond  // signals changes of windows, stages and dead
	calls   map[uint32]*call
	spare   [][]byte // buffers of earlier held messages, for reuse
	flow    flow     // of the connection, towards the backend
	initial int64    // a new stream's window, from the backend's SETTINGS
	streams streams
	usage   usage
	// acks has an entry for each SETTINGS frame that the backend has not acknowledged. For a frame of ours the
	// entry is the call that the frame ends. For a frame of the caller's it is nil.
	acks []*call

	drain    drain
	closed   bool
	writeErr error // error of the failed write that ended the connection

	opening sync.Mutex // only one message is decompressed at a time
}

// drain is the state of Drain.
type drain struct {
	// closing means that the relay does not forward streams above limit.
	closing bool
	limit   uint32
	why     string
	// sentFirst means that the caller got the backend's first frames. A caller accepts no other frames before them.
	sentFirst bool
}

// New makes a relayed connection of the two. Run serves it and closes both.
func New(caller, backend net.Conn, o Options) *Conn {
	if o.MaxMessage <= 0 {
		o.MaxMessage = DefaultMaxMessage
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = DefaultWriteTimeout
	}
	if o.Idle <= 0 {
		o.Idle = DefaultIdle
	}
	if o.Pick == nil {
		o.Pick = func(string) Held { return Held{} }
	}
	c := &Conn{
		o: o, caller: side{Conn: caller, in: newReader(caller, o.WriteTimeout), blocks: newBlocks(), writeTimeout: o.WriteTimeout},
		backend: side{Conn: backend, in: newReader(backend, o.WriteTimeout), blocks: newBlocks(), writeTimeout: o.WriteTimeout},
		streams: streams{open: map[uint32]uint8{}, since: time.Now()},
		calls:   map[uint32]*call{}, flow: flow{avail: initialWindow}, initial: initialWindow,
	}
	c.changed.L = &c.mu
	c.caller.fail = func(err error) { c.writeFailed("caller", err) }
	c.backend.fail = func(err error) { c.writeFailed("backend", err) }
	return c
}

// Run relays until either end closes the connection, ctx ends, or a frame is malformed. It returns after all hooks
// have returned, and returns nil if the connection ended normally.
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
		up = c.sendGoAway(&direction{in: c.caller.in}, err)
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
	c.endAllCalls()
	c.hooks.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(endError("caller", up), endError("backend", down), c.writeErr)
}

// copy passes bytes of a connection that is not HTTP/2, such as the HTTP/1 that CRI-O
// serves on the same socket.
func (c *Conn) copy(to *side, from net.Conn) {
	defer c.close()
	b := make([]byte, minFrameSize)
	for {
		_ = from.SetReadDeadline(time.Now().Add(c.o.Idle)) // fails only on a closed connection, which the read reports
		n, err := from.Read(b)
		if werr := to.write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

// writeFailed ends the connection after a failed write. It keeps the error for the log if that end is still
// connected but does not read.
func (c *Conn) writeFailed(who string, err error) {
	c.mu.Lock()
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.closed && c.writeErr == nil {
		c.writeErr = fmt.Errorf("the %s does not read: %w", who, err)
	}
	c.mu.Unlock()
	c.close()
}

// close closes both connections and wakes all that wait for them.
func (c *Conn) close() {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	c.changed.Broadcast()
	if first {
		c.cancel()
		_ = c.caller.Close()
		_ = c.backend.Close()
	}
}

// Drain asks the caller, by GOAWAY, to open no more calls on this connection. Running calls go on, and the caller
// closes the connection after the last one. It can safely repeat newer calls on another connection. Drain waits at
// most drainTimeout for an end that does not read, and then closes its connection.
func (c *Conn) Drain() { c.end("trimtab ends this connection; open another") }

// end drains the connection; why goes into the GOAWAY.
func (c *Conn) end(why string) {
	c.caller.shortenTimeout()
	c.backend.shortenTimeout()
	c.caller.mu.Lock()
	defer c.caller.mu.Unlock()
	c.mu.Lock()
	again, greeted := c.drain.closing, c.drain.sentFirst
	c.drain.closing = true
	if !again {
		c.drain.limit, c.drain.why = c.last.Load(), why
	}
	c.mu.Unlock()
	if !again && greeted {
		_ = c.caller.writeLocked(appendGoAway(nil, c.drain.limit, codeNone, why))
	}
}

// sendFirstFrames sends the backend's first frames to the caller, and then the frames that waited for them.
func (c *Conn) sendFirstFrames(first []byte) error {
	c.caller.mu.Lock()
	defer c.caller.mu.Unlock()
	c.mu.Lock()
	c.drain.sentFirst = true
	closing := c.drain.closing
	first = slices.Clip(first)
	for _, k := range c.calls {
		first = append(first, c.windowUpdates(k)...)
	}
	c.mu.Unlock()
	if closing {
		first = appendGoAway(first, c.drain.limit, codeNone, c.drain.why)
	}
	return c.caller.writeLocked(first)
}

// Holding reports whether a held call has not ended.
func (c *Conn) Holding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.calls {
		if k.stage != finished {
			return true
		}
	}
	return false
}

// endAllCalls ends the held calls that will get no answer.
func (c *Conn) endAllCalls() {
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

// finish ends a call for good. If a hook still runs, it finds the call ended when it returns.
func (c *Conn) finish(k *call, o Outcome) {
	c.mu.Lock()
	k.stage = finished
	c.forget(k)
	c.usage.heldBytes -= len(k.reply)
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

// endError returns nil for an error by which a connection ends normally, and otherwise
// an error to log.
func endError(who string, err error) error {
	if f := (*protocolError)(nil); !errors.As(err, &f) {
		return nil
	}
	return fmt.Errorf("%s: %w", who, err)
}
