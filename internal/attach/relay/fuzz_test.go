package relay_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"

	"github.com/trimtab/trimtab/internal/attach/relay"
	"github.com/trimtab/trimtab/test/clock"
)

// endless is a pipe without deadlines. net.Pipe keeps its deadlines in memory until they expire, even when
// it is closed: hundreds of megabytes while a fuzzer opens ten thousand pipes per second. In this test no
// end is slow.
type endless struct{ net.Conn }

func (endless) SetDeadline(time.Time) error      { return nil }
func (endless) SetReadDeadline(time.Time) error  { return nil }
func (endless) SetWriteDeadline(time.Time) error { return nil }

// played feeds a relay what its two ends send. When the connection has ended, it returns what each end
// received. Nothing may hang, and no state may be left.
func played(t *testing.T, o relay.Options, up, down []byte) (toBackend, toCaller []byte) {
	t.Helper()
	caller, a := net.Pipe()
	backend, b := net.Pipe()
	late := time.AfterFunc(10*time.Second, func() {
		_ = caller.Close()
		_ = backend.Close()
	})
	defer late.Stop()
	c := relay.New(endless{a}, endless{b}, o)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Run(context.Background())
	}()
	var out [2]bytes.Buffer
	read, wrote := make(chan struct{}, 2), make(chan struct{}, 2)
	for i, conn := range []net.Conn{backend, caller} {
		go func() {
			_, _ = io.Copy(&out[i], conn)
			read <- struct{}{}
		}()
	}
	for i, conn := range []net.Conn{caller, backend} {
		text := [][]byte{up, down}[i]
		go func() {
			_, _ = conn.Write(text)
			wrote <- struct{}{}
		}()
	}
	if len(up) >= len(preface) { // otherwise the relay waits for the rest, and does not read the backend
		<-wrote
		<-wrote
	}
	_ = caller.Close() // earlier frames still go to the backend
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it hangs")
	}
	_ = backend.Close()
	<-read
	<-read
	if s := c.Left(); s != "" {
		t.Errorf("left are %s", s)
	}
	if s := c.Beyond(); s != "" {
		t.Errorf("too much: %s", s)
	}
	return out[0].Bytes(), out[1].Bytes()
}

// FuzzFrames sends a relay arbitrary frames from both ends, with calls that are held in every way. It must
// not panic or hang, and must send only the frames that it received and frames of its own.
func FuzzFrames(f *testing.F) {
	settings := "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x10\x00"
	request := "\x00\x00\x05\x01\x04\x00\x00\x00\x01\x83\x04\x02/x" // :method POST, :path /x
	message := "\x00\x00\x06\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x01m"
	part := "\x00\x00\x05\x00\x00\x00\x00\x00\x01\x00\x00\x00\x10\x00" // of a message of 4 KiB
	reset := "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08"
	answer := "\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88"
	f.Add([]byte(preface+settings+request+message), []byte(settings+answer))
	f.Add([]byte(preface+request), []byte("\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\xff\xff"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), []byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Add([]byte(preface+"\x00\x00\x01\x09\x04\x00\x00\x00\x01\x88"), []byte("\x00\x00\x02\x00\x09\x00\x00\x00\x01\xff\x00"))
	f.Add([]byte(preface+settings+request+part+reset), []byte(settings+"\x00\x00\x00\x04\x01\x00\x00\x00\x00"))
	f.Add([]byte(preface+request+message+"\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00"), []byte(settings+"\x00\x00\x05\x05\x04\x00\x00\x00\x01\x00\x00\x00\x02\x88"+reset))
	f.Add([]byte(preface+strings.Repeat(request, 3)+message), []byte(answer+"\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02"))
	f.Fuzz(func(t *testing.T, up, down []byte) {
		clock.Bound(t, len(up)+len(down), func() {
			verdicts := []relay.Verdict{{}, {Message: []byte("other")}, {Refuse: &relay.Status{Code: 3, Text: "no"}}, {Appended: []byte("more")}}
			toBackend, toCaller := played(t, relay.Options{MaxMessage: 1 << 10, HandlingFor: func(path string) relay.Handling {
				v := verdicts[len(path)%4]
				return relay.Handling{RunsInline: len(path)%8 > 3, Hook: func(context.Context, []byte) relay.Verdict { return v }}
			}}, up, down)
			if len(toBackend) > len(up)+4096 || len(toCaller) > len(down)+len(up)*4+8192 {
				t.Errorf("%d bytes became %d, %d bytes became %d", len(up), len(toBackend), len(down), len(toCaller))
			}
		})
	})
}

// oracle reads frames with x/net, and returns where each valid frame ends: well-formed, with readable
// headers, and not on an old stream. rest reports whether the remaining bytes must not pass: a frame above
// the limit, or unreadable headers.
func oracle(b []byte) (ends []int, rest bool) {
	in := bytes.NewReader(b)
	framer := http2.NewFramer(io.Discard, in)
	framer.SetMaxReadFrameSize(16 << 10)
	fields := hpack.NewDecoder(4096, nil)
	var block []byte
	var last uint32
	whole, frames := 0, 0
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			at := 0
			if len(ends) > 0 {
				at = ends[len(ends)-1]
			}
			long := len(b) >= at+9 && binary.BigEndian.Uint32(b[at:])>>8 > 16<<10
			return ends[:whole], long
		}
		ends = append(ends, len(b)-in.Len())
		var done bool
		switch f := f.(type) {
		case *http2.HeadersFrame:
			if f.StreamID <= last {
				return ends[:whole], false
			}
			last, frames, block, done = f.StreamID, 1, bytes.Clone(f.HeaderBlockFragment()), f.HeadersEnded()
		case *http2.ContinuationFrame:
			frames, block, done = frames+1, append(block, f.HeaderBlockFragment()...), f.HeadersEnded()
			if frames > relay.MaxContinuations {
				return ends[:whole], true
			}
		case *http2.PushPromiseFrame, *http2.GoAwayFrame: // the first one cannot be a caller's, and the last one means that no more follow
			return ends[:whole], false
		default:
			whole = len(ends)
		}
		if done {
			if _, err := fields.DecodeFull(block); err != nil {
				return ends[:whole], true
			}
			whole = len(ends)
		}
	}
}

// FuzzPassed compares what a relay passes, for a caller without held calls, with what x/net reads: all
// well-formed frames pass unchanged, except settings that are lowered; frames that are too long, or have
// unreadable headers, do not pass.
func FuzzPassed(f *testing.F) {
	frames := func(write func(w *http2.Framer)) {
		var b bytes.Buffer
		w := http2.NewFramer(&b, nil)
		w.AllowIllegalWrites = true
		write(w)
		f.Add(b.Bytes())
	}
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for range 2 { // the second time from the table
		_ = enc.WriteField(hpack.HeaderField{Name: ":path", Value: "/some.Service/Method"})
		_ = enc.WriteField(hpack.HeaderField{Name: "x", Value: "y"})
	}
	frames(func(w *http2.Framer) {
		_ = w.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1<<24 - 1}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1 << 20})
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, PadLength: 3})
		_ = w.WriteDataPadded(1, true, []byte("data"), make([]byte, 9))
		_ = w.WriteRSTStream(1, http2.ErrCodeCancel)
		_ = w.WriteWindowUpdate(0, 1)
		_ = w.WritePing(true, [8]byte{1})
	})
	frames(func(w *http2.Framer) {
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes()[:5], Priority: http2.PriorityParam{Weight: 3}})
		_ = w.WriteContinuation(1, false, block.Bytes()[5:7])
		_ = w.WriteContinuation(1, true, block.Bytes()[7:])
		_ = w.WriteSettings()
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0xff}, EndHeaders: true})
	})
	frames(func(w *http2.Framer) { _ = w.WriteRawFrame(0xfa, 7, 5, make([]byte, 16<<10+1)) })
	frames(func(w *http2.Framer) {
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1})
		for range 130 {
			_ = w.WriteContinuation(1, false, nil)
		}
	})
	f.Fuzz(func(t *testing.T, up []byte) {
		clock.Bound(t, len(up), func() {
			if len(up) > 20<<10 { // otherwise it could have too many streams
				return
			}
			got, _ := played(t, relay.Options{}, append([]byte(preface), up...), nil)
			got = got[min(len(got), len(preface)):]
			ends, rest := oracle(up)
			at := 0
			for _, end := range ends {
				want := bytes.Clone(up[at:end])
				if want[3] == 4 { // SETTINGS
					for b := want[9:]; len(b) > 0; b = b[6:] {
						binary.BigEndian.PutUint32(b[2:], relay.Clamp(http2.SettingID(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint32(b[2:])))
					}
				}
				if len(got) < end || !bytes.Equal(got[at:end], want) {
					t.Fatalf("%x at %d did not pass: %x", want, at, got)
				}
				at = end
			}
			if rest && len(got) > at {
				t.Errorf("%x passed behind %d, which must not", got[at:], at)
			}
		})
	})
}

// FuzzHeaders compares how a relay reads header blocks, split at any place, with x/net: the paths are those
// of the requests, and unreadable blocks do not pass.
func FuzzHeaders(f *testing.F) {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for _, path := range []string{"/a/B", "/a/B", "/" + strings.Repeat("long", 500), "/a/B"} {
		b.Reset()
		_ = enc.WriteField(hpack.HeaderField{Name: ":path", Value: path})
		_ = enc.WriteField(hpack.HeaderField{Name: "grpc-encoding", Value: "gzip", Sensitive: true})
		f.Add(bytes.Clone(b.Bytes()), bytes.Clone(b.Bytes()), uint16(b.Len()/2), uint8(2))
	}
	f.Add([]byte{0x3f, 0xe1, 0x1f, 0x44, 1, '/'}, []byte{0x20, 0xbe}, uint16(0), uint8(0)) // 4096, and a row that was dropped
	f.Add([]byte{0x44, 1, '/'}, []byte{0xbe, 0x3f, 0xe2, 0x1f}, uint16(3), uint8(255))
	f.Add([]byte(nil), []byte{0x84}, uint16(9), uint8(1))
	f.Fuzz(func(t *testing.T, one, two []byte, cut uint16, pad uint8) {
		clock.Bound(t, len(one)+len(two), func() {
			if len(one) > 16000 || len(two) > 16000 {
				return
			}
			var in bytes.Buffer
			in.WriteString(preface)
			w := http2.NewFramer(&in, nil)
			at := int(cut) % (len(two) + 1)
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: one, EndHeaders: true, PadLength: pad})
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: two[:at], PadLength: pad, Priority: http2.PriorityParam{Weight: pad, StreamDep: uint32(cut)}})
			_ = w.WriteContinuation(3, true, two[at:])

			var got, want []string
			toBackend, _ := played(t, relay.Options{HandlingFor: func(path string) relay.Handling {
				got = append(got, path)
				return relay.Handling{}
			}}, in.Bytes(), nil)
			fields := hpack.NewDecoder(4096, nil)
			for _, block := range [][]byte{one, two} {
				all, err := fields.DecodeFull(block)
				if err != nil {
					break
				}
				path := ""
				for _, h := range all {
					if h.Name == ":path" {
						path = h.Value
					}
				}
				want = append(want, path)
			}
			if strings.Join(got, "\x00") != strings.Join(want, "\x00") || len(got) != len(want) {
				t.Errorf("asked about %q, want %q", got, want)
			}
			if whole := len(want) == 2; whole != bytes.Equal(toBackend, in.Bytes()) {
				t.Errorf("%x became %x", in.Bytes(), toBackend)
			}
		})
	})
}

// FuzzRefusal compares the answer to a refused call with what x/net reads of it: the status and its text,
// for any text.
func FuzzRefusal(f *testing.F) {
	f.Add(uint32(9), "trimtab: no: 100 %, für alle\n", false)
	f.Add(uint32(1<<32-1), strings.Repeat("\x00long", 2000), true)
	f.Add(uint32(0), "", true)
	f.Fuzz(func(t *testing.T, code uint32, text string, begun bool) {
		defer clock.Watch(t, len(text))()
		b := relay.Trailers(7, relay.Status{Code: codes.Code(code), Text: text}, begun)
		framer := http2.NewFramer(nil, bytes.NewReader(b))
		framer.ReadMetaHeaders = hpack.NewDecoder(0, nil)
		read, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		h, ok := read.(*http2.MetaHeadersFrame)
		if !ok || h.StreamID != 7 || !h.StreamEnded() {
			t.Fatalf("%v", read)
		}
		values := map[string]string{}
		for _, v := range h.Fields {
			values[v.Name] = v.Value
		}
		message, err := url.PathUnescape(values["grpc-message"])
		if err != nil || !strings.HasPrefix(text, message) || len(message) < min(len(text), relay.MaxText/3) {
			t.Errorf("%q became %q, %v", text, values["grpc-message"], err)
		}
		if values["grpc-status"] != strconv.FormatUint(uint64(code), 10) || (values[":status"] == "200") == begun {
			t.Errorf("status %v", values)
		}
	})
}
