package relay_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/attach/relay"
	"github.com/trimtab/trimtab/test/clock"
)

// FuzzFrames feeds a relay frames of any kind from both ends. It must not
// panic, must not hang, and must hand on nothing beyond what it was given but
// frames of its own.
func FuzzFrames(f *testing.F) {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	settings := "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x10\x00"
	request := "\x00\x00\x05\x01\x04\x00\x00\x00\x01\x83\x04\x02/x" // :method POST, :path /x
	message := "\x00\x00\x06\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x01m"
	f.Add([]byte(preface+settings+request+message), []byte(settings+"\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88"))
	f.Add([]byte(preface+request), []byte("\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\xff\xff"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), []byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Add([]byte(preface+"\x00\x00\x01\x09\x04\x00\x00\x00\x01\x88"), []byte("\x00\x00\x02\x00\x09\x00\x00\x00\x01\xff\x00"))
	f.Fuzz(func(t *testing.T, up, down []byte) {
		defer clock.WatchAll(t, len(up)+len(down))()
		caller, a := net.Pipe()
		backend, b := net.Pipe()
		verdicts := []relay.Verdict{{}, {Message: []byte("other")}, {Refuse: &relay.Status{Code: 3, Text: "no"}}, {More: []byte("more")}}
		c := relay.New(a, b, relay.Options{MaxMessage: 1 << 10, Pick: func(path string) relay.Held {
			v := verdicts[len(path)%4]
			return relay.Held{Quick: len(path)%8 > 3, Hook: func(context.Context, []byte) relay.Verdict { return v }}
		}})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = c.Run(context.Background())
		}()
		end := time.Now().Add(10 * time.Second)
		_, _ = caller.SetDeadline(end), backend.SetDeadline(end)
		var toBackend, toCaller bytes.Buffer
		read := make(chan struct{}, 2)
		for to, from := range map[*bytes.Buffer]net.Conn{&toBackend: backend, &toCaller: caller} {
			go func() {
				_, _ = io.Copy(to, from)
				read <- struct{}{}
			}()
		}
		wrote := make(chan struct{}, 2)
		for text, to := range map[*[]byte]net.Conn{&up: caller, &down: backend} {
			go func() {
				_, _ = to.Write(*text)
				wrote <- struct{}{}
			}()
		}
		<-wrote
		<-wrote
		_ = caller.Close()
		_ = backend.Close()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatal("it hangs")
		}
		<-read
		<-read
		if toBackend.Len() > len(up)+4096 || toCaller.Len() > len(down)+len(up)*4+8192 {
			t.Errorf("%d bytes became %d, %d bytes became %d", len(up), toBackend.Len(), len(down), toCaller.Len())
		}
	})
}
