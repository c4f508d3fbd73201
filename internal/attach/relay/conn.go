package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/trimtab/trimtab/internal/attach/workerpool"
)

// Options configure a relayed connection.
type Options struct {
	// HandlingFor says which calls the relay holds; nil means none.
	HandlingFor HandlingFunc
	// MaxMessage is the longest message of a held call, in bytes. The relay forwards a longer message unchanged.
	// Default: 16 MiB, as in the kubelet.
	MaxMessage int
	// WriteTimeout is how long one write to the caller or to the backend may take before the relay closes the connection.
	// Default: DefaultWriteTimeout.
	WriteTimeout time.Duration
	// IdleTimeout is how long the connection may have no call before the relay asks the caller to close the connection.
	// Default: DefaultIdleTimeout.
	IdleTimeout time.Duration
}

// DefaultMaxMessage is the longest message in bytes that the kubelet and the runtimes accept.
const DefaultMaxMessage = 16 << 20

// Conn is one caller's connection, which the relay forwards to a backend.
type Conn struct {
	o       Options
	caller  endpoint
	backend endpoint
	// ctx ends when the connection ends. The contexts of the hooks derive from ctx.
	ctx    context.Context
	cancel context.CancelFunc
	hooks  workerpool.Pool // runs hooks on other goroutines

	// highestStream is the highest id of a stream that the caller has opened. Only the goroutine that reads from the
	// caller changes highestStream. Other goroutines read it for GOAWAY frames.
	highestStream atomic.Uint32

	mu            sync.Mutex       // guards the fields from calls to writeErr; never held across I/O
	changed       sync.Cond        // signals a change of a flow-control window, of a call's stage, or of closed
	calls         map[uint32]*call // the calls that the relay holds or refuses, by stream id
	spareBuffers  [][]byte         // buffers of earlier held messages, for reuse
	flow          flow             // the flow-control window of the whole connection, towards the backend
	initialWindow int64            // a new stream's window, from the backend's SETTINGS
	streams       streams
	usage         usage
	// unackedSettings has an element for each SETTINGS frame that the backend has not acknowledged, in the order of the
	// frames. For a frame of the relay, the element is the call that the relay refuses after the acknowledgement. For a
	// frame of the caller, the element is nil.
	unackedSettings []*call

	drain    drain
	closed   bool
	writeErr error // the error of a write that timed out, because the caller or the backend did not read

	decompressing sync.Mutex // held while a message is decompressed, so that the relay decompresses one at a time
}

// drain is the state of a connection that the relay is closing by a GOAWAY frame.
type drain struct {
	// closing means that the relay has begun to close the connection. It forwards no stream with an id above limit.
	closing bool
	limit   uint32 // the highest id of a stream when the relay began to close the connection
	reason  string // the reason in the GOAWAY frame
	// firstFramesSent means that the caller got the backend's first frames. A caller accepts no other frames before
	// these.
	firstFramesSent bool
}

// New returns a Conn that relays between a caller and a backend. Conn.Run relays and closes both connections.
func New(caller, backend net.Conn, o Options) *Conn {
	o.MaxMessage = cmp.Or(max(o.MaxMessage, 0), DefaultMaxMessage)
	o.WriteTimeout, o.IdleTimeout = cmp.Or(max(o.WriteTimeout, 0), DefaultWriteTimeout), cmp.Or(max(o.IdleTimeout, 0), DefaultIdleTimeout)
	if o.HandlingFor == nil {
		o.HandlingFor = func(string) Handling { return Handling{} }
	}
	c := &Conn{
		o: o, caller: endpoint{Conn: caller, reader: newReader(caller, o.WriteTimeout), blocks: newBlocks(), writeTimeout: o.WriteTimeout},
		backend: endpoint{Conn: backend, reader: newReader(backend, o.WriteTimeout), blocks: newBlocks(), writeTimeout: o.WriteTimeout},
		streams: streams{open: map[uint32]uint8{}, idleSince: time.Now()},
		calls:   map[uint32]*call{}, flow: flow{window: initialWindow}, initialWindow: initialWindow,
	}
	c.changed.L = &c.mu
	c.caller.onWriteError = func(err error) { c.writeFailed("caller", err) }
	c.backend.onWriteError = func(err error) { c.writeFailed("backend", err) }
	return c
}

// Run relays until ctx ends, or until the caller or the backend closes its connection, violates the protocol or a
// limit, or does not read. It returns after all hooks have returned. It returns nil if the connection ended normally.
func (c *Conn) Run(ctx context.Context) error {
	c.ctx, c.cancel = context.WithCancel(ctx)
	defer c.cancel()
	stop := context.AfterFunc(c.ctx, c.close)
	defer stop()

	var up, down error
	var both sync.WaitGroup
	first, same, err := c.caller.reader.readPrefix(http2.ClientPreface)
	switch {
	case err != nil:
		up = c.sendGoAway(&direction{in: c.caller.reader}, err)
	case same:
		both.Go(c.closeWhenIdle)
		both.Go(func() {
			defer c.close()
			down = c.relayDown()
		})
		up = c.relayUp(first)
	default:
		both.Go(func() { c.copyBytes(&c.caller, c.backend.Conn) })
		if err := c.backend.write(first); err == nil {
			c.copyBytes(&c.backend, c.caller.Conn)
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

// copyBytes forwards the bytes of a connection that is not HTTP/2, such as the HTTP/1 that CRI-O serves on the same
// socket.
func (c *Conn) copyBytes(to *endpoint, from net.Conn) {
	defer c.close()
	b := make([]byte, minFrameSize)
	for {
		_ = from.SetReadDeadline(time.Now().Add(c.o.IdleTimeout)) // fails only on a closed connection, which the read reports
		n, err := from.Read(b)
		if werr := to.write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

// writeFailed ends the connection after a failed write. receiver names the end to which the relay wrote: "caller" or
// "backend". If this end is still connected but does not read, writeFailed stores the error for Run.
func (c *Conn) writeFailed(receiver string, err error) {
	c.mu.Lock()
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.closed && c.writeErr == nil {
		c.writeErr = fmt.Errorf("the %s does not read: %w", receiver, err)
	}
	c.mu.Unlock()
	c.close()
}

// close closes the connections to the caller and to the backend, and wakes all goroutines that wait for a change of the
// connection's state.
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

// Drain asks the caller, by a GOAWAY frame, to open no more calls on this connection. Running calls go on, and the
// caller closes the connection after the last call has ended. The relay drops calls that the caller opens after the
// GOAWAY, so the caller can safely repeat these calls on another connection. After Drain, the relay closes the
// connection if a write takes longer than drainTimeout.
func (c *Conn) Drain() { c.startDrain("trimtab closes this connection; open another connection") }

// startDrain drains the connection. why is the reason in the GOAWAY frame.
func (c *Conn) startDrain(why string) {
	c.caller.shortenTimeout()
	c.backend.shortenTimeout()
	c.caller.mu.Lock()
	defer c.caller.mu.Unlock()
	c.mu.Lock()
	again, firstFramesSent := c.drain.closing, c.drain.firstFramesSent
	c.drain.closing = true
	if !again {
		c.drain.limit, c.drain.reason = c.highestStream.Load(), why
	}
	c.mu.Unlock()
	if !again && firstFramesSent {
		_ = c.caller.writeLocked(appendGoAway(nil, c.drain.limit, http2.ErrCodeNo, why))
	}
}

// sendFirstFrames sends the backend's first frames to the caller. It then sends the relay's own frames, which a caller
// does not accept before the backend's first frames.
func (c *Conn) sendFirstFrames(first []byte) error {
	c.caller.mu.Lock()
	defer c.caller.mu.Unlock()
	c.mu.Lock()
	c.drain.firstFramesSent = true
	closing := c.drain.closing
	first = slices.Clip(first)
	for _, k := range c.calls {
		first = append(first, c.windowUpdates(k)...)
	}
	c.mu.Unlock()
	if closing {
		first = appendGoAway(first, c.drain.limit, http2.ErrCodeNo, c.drain.reason)
	}
	return c.caller.writeLocked(first)
}

// HasHeldCall reports whether the connection has a held call that has not ended.
func (c *Conn) HasHeldCall() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.calls {
		if k.stage != stageFinished {
			return true
		}
	}
	return false
}

// endAllCalls ends all stored calls. The connection has ended, so these calls get no answer.
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

// finish ends a call and calls its OnOutcome. If the hook of the call still runs, the verdict of the hook will have no
// effect.
func (c *Conn) finish(k *call, o Outcome) {
	c.mu.Lock()
	k.stage = stageFinished
	c.dropHeldBytes(k)
	c.usage.heldBytes -= len(k.reply)
	k.reply = nil
	done, cancel := k.onOutcome, k.cancel
	k.onOutcome = nil
	o.Sent = k.sent
	c.mu.Unlock()
	c.changed.Broadcast()
	cancel()
	if done != nil {
		done(o)
	}
}

// endError returns the error for the log if a connection ended because of a protocol error, and nil otherwise. sender
// names the end that violated the protocol: "caller" or "backend".
func endError(sender string, err error) error {
	if _, atFault := errors.AsType[*protocolError](err); !atFault {
		return nil
	}
	return fmt.Errorf("%s: %w", sender, err)
}
