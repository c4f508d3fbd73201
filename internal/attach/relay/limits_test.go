package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/trimtab/trimtab/internal/attach/relay"
)

// TestTooMuch: either end sends more than a connection may. That end gets the right error code, and the
// connection ends.
func TestTooMuch(t *testing.T) {
	long := func(e *end, n int) { e.try(e.WriteRawFrame(0xfa, 0, 0, make([]byte, n))) }
	for name, c := range map[string]struct {
		code http2.ErrCode
		do   func(e *end)
	}{
		"a frame above what was announced": {http2.ErrCodeFrameSize, func(e *end) { long(e, 16<<10+1) }},
		"only the header of such a frame":  {http2.ErrCodeFrameSize, func(e *end) { e.raw([]byte{0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1}) }},
		"settings of a wrong size":         {http2.ErrCodeFrameSize, func(e *end) { e.try(e.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 5))) }},
		"a header block of 1 MiB and more": {http2.ErrCodeEnhanceYourCalm, func(e *end) {
			e.try(e.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: e.request()}))
			for range 64 {
				_ = e.WriteContinuation(1, false, make([]byte, 16<<10))
			}
		}},
		"a header block in many empty frames": {http2.ErrCodeEnhanceYourCalm, func(e *end) {
			e.try(e.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: e.request()}))
			for range 128 {
				_ = e.WriteContinuation(1, false, nil)
			}
		}},
		"a header block that another frame interrupts": {http2.ErrCodeProtocol, func(e *end) {
			e.try(e.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: e.request()}))
			e.try(e.WritePing(false, [8]byte{}))
		}},
		"headers that cannot be read": {http2.ErrCodeCompression, func(e *end) {
			e.try(e.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff}, EndHeaders: true}))
		}},
		"a compression table above what was announced": {http2.ErrCodeCompression, func(e *end) {
			e.try(e.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x3f, 0xe2, 0x1f, 0x82}, EndHeaders: true}))
		}},
	} {
		t.Run("caller, "+name, func(t *testing.T) {
			caller, _, ran := ends(t, relay.Options{})
			c.do(caller)
			caller.goesAway(c.code)
			if err := <-ran; err == nil || !strings.HasPrefix(err.Error(), "caller: ") {
				t.Errorf("it ended with %v", err)
			}
		})
		t.Run("backend, "+name, func(t *testing.T) {
			caller, backend, ran := ends(t, relay.Options{})
			caller.open(1, false)
			c.do(backend)
			backend.goesAway(c.code)
			caller.goesAway(http2.ErrCodeInternal)
			if err := <-ran; err == nil || !strings.HasPrefix(err.Error(), "backend: ") {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// TestHeaderList: a block of a few kB can decode to megabytes of headers.
func TestHeaderList(t *testing.T) {
	caller, _, ran := ends(t, relay.Options{})
	large := hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 3000)}
	many := make([]hpack.HeaderField, 6000)
	for i := range many {
		many[i] = large
	}
	block := caller.request(many...)
	t.Logf("a block of %d bytes", len(block))
	caller.try(caller.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true}))
	caller.goesAway(http2.ErrCodeEnhanceYourCalm)
	<-ran
}

// TestAnnounced: the settings of one end reach the other within the relay's bounds, and the relay enforces
// these.
func TestAnnounced(t *testing.T) {
	values := func(f http2.Frame) string {
		out := ""
		_ = f.(*http2.SettingsFrame).ForeachSetting(func(s http2.Setting) error {
			out += fmt.Sprintf("%d=%d ", s.ID, s.Val)
			return nil
		})
		return out
	}
	isSettings := func(f http2.Frame) bool {
		return f.Header().Type == http2.FrameSettings && !f.Header().Flags.Has(http2.FlagSettingsAck)
	}
	caller, backend, _ := ends(t, relay.Options{})
	for want, of := range map[string][]http2.Setting{
		"1=65536 3=1024 5=1048576 ": {{ID: http2.SettingHeaderTableSize, Val: 1 << 30}, {ID: http2.SettingMaxConcurrentStreams, Val: 1 << 31}, {ID: http2.SettingMaxFrameSize, Val: 1<<24 - 1}},
		"1=0 3=100 5=16384 4=7 99=8 ": {{ID: http2.SettingHeaderTableSize, Val: 0}, {ID: http2.SettingMaxConcurrentStreams, Val: 100},
			{ID: http2.SettingMaxFrameSize, Val: 16384}, {ID: http2.SettingInitialWindowSize, Val: 7}, {ID: 99, Val: 8}},
		"5=16777216 ": {{ID: http2.SettingMaxFrameSize, Val: 1 << 24}}, // not allowed: the receiving end reports the error
	} {
		backend.try(backend.WriteSettings(of...))
		if got := values(caller.until("settings", isSettings)); got != want {
			t.Errorf("the backend's %v reach the caller as %s, want %s", of, got, want)
		}
	}
	caller.try(caller.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1 << 30}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1<<24 - 1}))
	if got, want := values(backend.until("settings", isSettings)), "1=65536 5=1048576 "; got != want {
		t.Errorf("the caller's reach the backend as %s, want %s", got, want)
	}
	for _, way := range [][2]*end{{caller, backend}, {backend, caller}} {
		from, to := way[0], way[1]
		go func(w *http2.Framer) { _ = w.WriteRawFrame(0xfa, 0, 0, make([]byte, 1<<20)) }(from.second())
		to.until("a frame of 1 MiB", func(f http2.Frame) bool { return f.Header().Length == 1<<20 })
	}
	_ = caller.WriteRawFrame(0xfa, 0, 0, make([]byte, 1<<20+1)) // the header of the frame is enough
	caller.goesAway(http2.ErrCodeFrameSize)
}

// TestAnnouncedStreams: if a backend announces no limit of streams, like grpc-go, the relay announces one
// in the first frame.
func TestAnnouncedStreams(t *testing.T) {
	for _, c := range []struct {
		greeting []http2.Setting
		want     uint32
	}{{nil, 1024}, {[]http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 50}}, 50}} {
		a, callerConn := pair(t)
		b, backendConn := pair(t)
		go func() { _ = relay.New(a, b, relay.Options{}).Run(context.WithoutCancel(t.Context())) }()
		caller, backend := newEnd(t, callerConn), newEnd(t, backendConn)
		caller.raw([]byte(preface))
		backend.try(backend.WriteSettings(c.greeting...))
		f, err := caller.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := f.(*http2.SettingsFrame).Value(http2.SettingMaxConcurrentStreams); !ok || v != c.want {
			t.Errorf("%v: %d, %v, want %d", c.greeting, v, ok, c.want)
		}
	}
}

// TestWindows: if a backend increases a window above its maximum, the connection ends: for the connection's
// window and for that of a held call.
func TestWindows(t *testing.T) {
	hook := func(context.Context, []byte) relay.Verdict { return relay.Verdict{} }
	for name, c := range map[string]struct {
		stream uint32
		legal  uint32
	}{"connection": {0, 1<<31 - 1 - 65535}, "call": {1, 1<<31 - 1 - 65535}} {
		t.Run(name, func(t *testing.T) {
			caller, backend, _ := ends(t, relay.Options{HandlingFor: func(string) relay.Handling { return relay.Handling{Hook: hook} }})
			caller.open(1, false)
			backend.until("the call", func(f http2.Frame) bool { return f.Header().StreamID == 1 })
			backend.try(backend.WriteWindowUpdate(c.stream, c.legal))
			caller.until("the window", func(f http2.Frame) bool { return f.Header().Type == http2.FrameWindowUpdate })
			backend.try(backend.WriteWindowUpdate(c.stream, 1))
			backend.goesAway(http2.ErrCodeFlowControl)
			caller.goesAway(http2.ErrCodeInternal)
		})
	}
	t.Run("nothing given", func(t *testing.T) { // the caller checks that
		caller, backend, _ := ends(t, relay.Options{})
		backend.try(backend.WriteWindowUpdate(0, 0))
		f, err := caller.ReadFrame()
		if want := (http2.ConnectionError(http2.ErrCodeProtocol)); !errors.Is(err, want) {
			t.Errorf("%v, %v", f, err)
		}
	})
}

// TestFirstFrames: a caller that does not wait for the first settings fills its windows with a held
// message. The window updates for it come after the first settings, whatever follows these.
func TestFirstFrames(t *testing.T) {
	a, callerConn := pair(t)
	b, backendConn := pair(t)
	hook := func(context.Context, []byte) relay.Verdict { return relay.Verdict{} }
	go func() {
		_ = relay.New(a, b, relay.Options{HandlingFor: func(string) relay.Handling { return relay.Handling{Hook: hook} }}).Run(context.WithoutCancel(t.Context()))
	}()
	caller, backend := newEnd(t, callerConn), newEnd(t, backendConn)
	caller.raw([]byte(preface))
	caller.open(1, false)
	message := make([]byte, 65535)
	message[1+1] = 1 // 65,536 bytes and its prefix
	for part := range slices.Chunk(message, 16<<10) {
		caller.try(caller.WriteData(1, false, part))
	}
	if _, err := io.ReadFull(backendConn, make([]byte, len(preface))); err != nil {
		t.Fatal(err)
	}
	backend.until("the call", func(f http2.Frame) bool { return f.Header().Type == http2.FrameHeaders })
	caller.try(caller.WritePing(false, [8]byte{}))
	backend.until("a ping behind the message", func(f http2.Frame) bool { return f.Header().Type == http2.FramePing })
	var first bytes.Buffer
	w := http2.NewFramer(&first, nil)
	_ = errors.Join(w.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 9}),
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: backend.request()}),
		w.WriteContinuation(1, true, nil))
	backend.raw(first.Bytes())
	f, err := caller.ReadFrame()
	if err != nil || f.Header().Type != http2.FrameSettings {
		t.Fatalf("the first frame is %v, %v", f, err)
	}
	caller.until("a window", func(f http2.Frame) bool { return f.Header().Type == http2.FrameWindowUpdate })
}

// TestPushed: the headers of a promised stream use the same compression state as all others.
func TestPushed(t *testing.T) {
	caller, backend, _ := ends(t, relay.Options{HandlingFor: func(string) relay.Handling {
		return relay.Handling{Hook: func(context.Context, []byte) relay.Verdict { return relay.Verdict{} }}
	}})
	caller.open(1, false)
	backend.try(backend.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: backend.request(), EndHeaders: true}))
	again := backend.request() // refers to the first one
	backend.try(backend.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: again, EndHeaders: true}))
	caller.ReadMetaHeaders = caller.blocks
	caller.until("the promise", func(f http2.Frame) bool {
		p, ok := f.(*http2.PushPromiseFrame)
		if ok {
			_, err := caller.blocks.DecodeFull(p.HeaderBlockFragment())
			caller.try(err)
		}
		return ok
	})
	f := caller.until("headers", func(f http2.Frame) bool { return f.Header().Type == http2.FrameHeaders })
	if got := fmt.Sprint(f); !strings.Contains(got, "HEADERS") {
		t.Error(got)
	}
}
