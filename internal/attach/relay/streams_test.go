package relay_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	"golang.org/x/net/http2"

	"github.com/trimtab/trimtab/internal/attach/relay"
)

// TestStreams: calls above the limit of open calls, held or not, are refused in a way that the caller may
// repeat them; when others have ended, new calls pass.
func TestStreams(t *testing.T) {
	hook := func(context.Context, []byte) relay.Verdict { return relay.Verdict{} }
	for name, pick := range map[string]relay.HandlingFunc{"held": func(string) relay.Handling { return relay.Handling{Hook: hook} }, "not held": nil} {
		t.Run(name, func(t *testing.T) {
			caller, backend, _ := ends(t, relay.Options{HandlingFor: pick})
			// A backend may answer a complete call before the relay resets it there, so this one does not answer the calls
			// that the relay refuses.
			const last = 2*1024 - 1
			backend.answersIf(func(stream uint32) bool { return stream <= last || stream > 4000 })
			for stream := uint32(1); stream <= last; stream += 2 {
				caller.open(stream, false)
			}
			for _, ended := range []bool{false, true} {
				for i := range uint32(3) {
					stream := last + 2 + 2*i
					if ended {
						stream += 10
					}
					caller.open(stream, ended)
					caller.until("the refusal", refusedStream(stream))
				}
			}
			// One is reset, one ends.
			caller.try(caller.WriteRSTStream(1, http2.ErrCodeCancel))
			caller.try(caller.WriteData(3, true, []byte{0, 0, 0, 0, 0}))
			caller.until("an answer", func(f http2.Frame) bool { return f.Header().StreamID == 3 && f.Header().Type == http2.FrameHeaders })
			for _, stream := range []uint32{4001, 4003} {
				caller.open(stream, true)
				caller.until("an answer", func(f http2.Frame) bool {
					return f.Header().StreamID == stream && f.Header().Type == http2.FrameHeaders
				})
			}
			for stream := uint32(5001); stream < 20_000; stream += 2 { // no state of them is left
				caller.open(stream, true)
				if stream%100 == 1 {
					caller.until("an answer", func(f http2.Frame) bool {
						return f.Header().StreamID == stream && f.Header().Type == http2.FrameHeaders
					})
				}
			}
		})
	}
}

// TestRefusedStream: frames on a refused stream do not reach the backend, which has closed the stream.
func TestRefusedStream(t *testing.T) {
	caller, backend, _ := ends(t, relay.Options{})
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		for i := range uint32(1025) {
			caller.open(2*i+1, false)
		}
	}()
	backend.until("a reset", func(f http2.Frame) bool { return f.Header().Type == http2.FrameRSTStream })
	backend.try(backend.WriteSettingsAck())
	caller.until("the refusal", refusedStream(2049))
	<-opened // the refusal may come before the last write has returned
	caller.try(caller.WriteData(2049, true, []byte{0, 0, 0, 0, 0}))
	caller.try(caller.WritePing(false, [8]byte{}))
	backend.until("a ping", func(f http2.Frame) bool {
		if f.Header().Type == http2.FrameData {
			t.Errorf("%v", f)
		}
		return f.Header().Type == http2.FramePing
	})
}

// TestRapidResets: a caller that cancels every call at once does not make more hooks run than calls may be
// open.
func TestRapidResets(t *testing.T) {
	asked, release := make(chan bool, 5000), make(chan bool)
	defer close(release)
	hook := func(context.Context, []byte) relay.Verdict {
		asked <- true
		<-release // a hook that ignores its context
		return relay.Verdict{}
	}
	caller, backend, _ := ends(t, relay.Options{HandlingFor: func(string) relay.Handling { return relay.Handling{Hook: hook} }})
	backend.answers()
	for i := range uint32(1030) {
		caller.open(2*i+1, false)
		caller.try(caller.WriteData(2*i+1, true, []byte{0, 0, 0, 0, 0}))
		if i < 1024 {
			caller.try(caller.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
		}
	}
	caller.until("the refusal", refusedStream(2*1029+1))
	eventually(t, func() bool { return len(asked) == 1024 })
	if len(asked) != 1024 {
		t.Errorf("%d hooks are asked", len(asked))
	}
}

// TestFloods: frames that create state until the other end reacts, which it does not.
func TestFloods(t *testing.T) {
	t.Run("settings without acknowledgement", func(t *testing.T) {
		caller, backend, _ := ends(t, relay.Options{})
		go func() { _, _ = io.Copy(io.Discard, backend.conn) }()
		go func() { _, _ = caller.conn.Write(bytes.Repeat([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}, 1<<16+1)) }()
		caller.goesAway(http2.ErrCodeEnhanceYourCalm)
	})
	t.Run("settings that are acknowledged", func(t *testing.T) {
		caller, backend, _ := ends(t, relay.Options{})
		backend.answers()
		for range 1000 {
			caller.try(caller.WriteSettings())
			caller.until("an acknowledgement", func(f http2.Frame) bool { return f.Header().Type == http2.FrameSettings })
		}
	})
	for name, reset := range map[string]bool{"calls that are refused": false, "calls that are refused and reset": true} {
		t.Run(name, func(t *testing.T) {
			caller, backend, _ := ends(t, relay.Options{})
			go func() { _, _ = io.Copy(io.Discard, backend.conn) }()
			go func() {
				for i := range uint32(4000) {
					block := caller.request()
					if caller.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block, EndHeaders: true}) != nil {
						return
					}
					if reset && i >= 1024 && caller.WriteRSTStream(2*i+1, http2.ErrCodeCancel) != nil {
						return
					}
				}
			}()
			caller.goesAway(http2.ErrCodeEnhanceYourCalm)
		})
	}
}
