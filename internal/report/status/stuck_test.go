package status

import (
	"net"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/report/web"
)

// TestServeToNobodyWhoReads: clients that send requests and read no answers do not keep the agent from
// ending.
func TestServeToNobodyWhoReads(t *testing.T) {
	path := socketPath(t)
	src := newJournal()
	for range 20_000 { // more than a socket's buffer holds
		src.add("CreateContainer")
	}
	stop := serve(t, path, src)
	for range 3 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("GET /v1/events?follow=true HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		one := make([]byte, 1)
		if _, err := conn.Read(one); err != nil { // the server is answering the request
			t.Fatal(err)
		}
	}
	start := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 8*web.ShutdownTimeout {
		t.Errorf("it took %v", took)
	}
}
