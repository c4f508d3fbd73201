package relay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/trimtab/trimtab/internal/attach/relay"
)

// end is one end of a relayed connection, which sends arbitrary frames.
type end struct {
	*http2.Framer

	t       *testing.T
	conn    net.Conn
	block   bytes.Buffer
	encoder *hpack.Encoder
	blocks  *hpack.Decoder
}

func newEnd(t *testing.T, conn net.Conn) *end {
	t.Helper()
	e := &end{Framer: http2.NewFramer(conn, conn), t: t, conn: conn}
	e.SetMaxReadFrameSize(1<<24 - 1)
	e.AllowIllegalWrites = true
	e.encoder = hpack.NewEncoder(&e.block)
	e.blocks = hpack.NewDecoder(1<<20, nil)
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return e
}

// ends returns a caller that has sent its preface and a backend that has sent its first settings, with a
// relay between them. ran returns the relay's error.
func ends(t *testing.T, o relay.Options, greeting ...http2.Setting) (caller, backend *end, ran chan error) {
	t.Helper()
	return endsOver(t, pair, o, greeting...)
}

// endsOver is ends for connections of another kind.
func endsOver(t *testing.T, pair func(*testing.T) (ours, theirs net.Conn), o relay.Options, greeting ...http2.Setting) (caller, backend *end, ran chan error) {
	t.Helper()
	a, c := pair(t)
	b, d := pair(t)
	ran = make(chan error, 1)
	go func() { ran <- relay.New(a, b, o).Run(context.WithoutCancel(t.Context())) }()
	caller, backend = newEnd(t, c), newEnd(t, d)
	t.Cleanup(func() { _ = c.Close(); _ = d.Close() })
	caller.raw([]byte(preface))
	backend.try(backend.WriteSettings(greeting...))
	if _, err := io.ReadFull(d, make([]byte, len(preface))); err != nil {
		t.Fatal(err)
	}
	caller.until("the greeting", func(f http2.Frame) bool { return f.Header().Type == http2.FrameSettings })
	return caller, backend, ran
}

func (e *end) try(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *end) raw(b []byte) {
	e.t.Helper()
	_, err := e.conn.Write(b)
	e.try(err)
}

// until reads frames up to the expected one.
func (e *end) until(what string, is func(f http2.Frame) bool) http2.Frame {
	e.t.Helper()
	for {
		f, err := e.ReadFrame()
		if err != nil {
			e.t.Fatalf("%s did not come: %v", what, err)
		}
		if is(f) {
			return f
		}
	}
}

// goesAway reads up to a GOAWAY with a code, and checks that the connection then ends.
func (e *end) goesAway(code http2.ErrCode) {
	e.t.Helper()
	f := e.until("GOAWAY", func(f http2.Frame) bool { return f.Header().Type == http2.FrameGoAway })
	g := f.(*http2.GoAwayFrame)
	if g.ErrCode != code {
		e.t.Errorf("%v %q, want %v", g.ErrCode, g.DebugData(), code)
	}
	e.t.Logf("%v: %s", g.ErrCode, g.DebugData())
	e.ends()
}

func (e *end) ends() {
	e.t.Helper()
	for {
		if _, err := e.ReadFrame(); errors.Is(err, context.DeadlineExceeded) || err != nil && strings.Contains(err.Error(), "timeout") {
			e.t.Fatal("the connection does not end")
		} else if err != nil {
			return
		}
	}
}

// request is the header block of a call.
func (e *end) request(more ...hpack.HeaderField) []byte {
	e.block.Reset()
	for _, h := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/some.Service/Held"},
		{Name: ":authority", Value: "x"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, more...) {
		_ = e.encoder.WriteField(h)
	}
	return bytes.Clone(e.block.Bytes())
}

// open opens a call.
func (e *end) open(stream uint32, ended bool) {
	e.t.Helper()
	e.try(e.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: e.request(), EndHeaders: true, EndStream: ended}))
}

// second writes to the same connection from another goroutine: each frame is one write.
func (e *end) second() *http2.Framer {
	w := http2.NewFramer(e.conn, nil)
	w.AllowIllegalWrites = true
	return w
}

// answers makes a backend acknowledge settings until its connection ends, and answer each call at its end.
func (e *end) answers() { e.answersIf(func(uint32) bool { return true }) }

// answersIf is answers for the picked streams only. The backend leaves the other calls open.
func (e *end) answersIf(picked func(stream uint32) bool) {
	e.block.Reset()
	_ = e.encoder.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	block := bytes.Clone(e.block.Bytes())
	w := e.second()
	go func() {
		for {
			f, err := e.ReadFrame()
			if err != nil {
				return
			}
			switch h := f.Header(); {
			case h.Type == http2.FrameSettings && !h.Flags.Has(http2.FlagSettingsAck):
				_ = w.WriteSettingsAck()
			case (h.Type == http2.FrameData || h.Type == http2.FrameHeaders) && h.Flags.Has(http2.FlagDataEndStream) && picked(h.StreamID):
				_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: block, EndHeaders: true, EndStream: true})
			}
		}
	}()
}

func refusedStream(stream uint32) func(f http2.Frame) bool {
	return func(f http2.Frame) bool {
		r, ok := f.(*http2.RSTStreamFrame)
		return ok && r.StreamID == stream && r.ErrCode == http2.ErrCodeRefusedStream
	}
}
