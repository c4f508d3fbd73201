package scale

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// meter counts requests by verb and resource, and bytes of the connections, with those of TLS and without
// those of TCP.
type meter struct {
	sent, received atomic.Int64

	mu        sync.Mutex // guards all below
	requests  map[string]int
	refused   map[int]int // answers that are not a success, by status; 0 for none
	begun     time.Time
	bySeconds []int
}

func newMeter() *meter {
	return &meter{requests: map[string]int{}, refused: map[int]int{}, begun: time.Now()}
}

// reading is what a meter counted.
type reading struct {
	requests       map[string]int
	refused        map[int]int
	bySeconds      []int
	sent, received int64
}

// again returns the counts, and resets them.
func (m *meter) again() reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := reading{m.requests, m.refused, m.bySeconds, m.sent.Swap(0), m.received.Swap(0)}
	m.requests, m.refused, m.bySeconds, m.begun = map[string]int{}, map[int]int{}, nil, time.Now()
	return r
}

// sum counts requests; writes counts only those that change something.
func (r reading) sum(writes bool) (n int) {
	for what, count := range r.requests {
		if verb, _, _ := strings.Cut(what, " "); !writes || verb != "get" && verb != "list" && verb != "watch" {
			n += count
		}
	}
	return n
}

// peak returns the highest number of requests in one second, and in how many seconds nine of ten were made.
func (r reading) peak() (most, spread int) {
	all, soFar := r.sum(false), 0
	for i, n := range r.bySeconds {
		most = max(most, n)
		if soFar < all*9/10 {
			spread = i + 1
		}
		soFar += n
	}
	return most, spread
}

// String returns the counts so far, by kind.
func (m *meter) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprint(m.requests)
}

// seen waits until this many requests of a kind have succeeded.
func (m *meter) seen(what string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests[what]
}

// counted is a transport whose requests a meter counts.
type counted struct {
	meter *meter
	to    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := c.to.RoundTrip(r)
	status := 0
	if err == nil {
		status = res.StatusCode
	}
	m := c.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[kind(r)]++
	if status < 200 || status >= 300 {
		m.refused[status]++
	}
	second := int(time.Since(m.begun) / time.Second)
	for len(m.bySeconds) <= second {
		m.bySeconds = append(m.bySeconds, 0)
	}
	m.bySeconds[second]++
	return res, err
}

// kind returns a request's verb and resource, as the API server's own metrics name them.
func kind(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if i := 2; len(parts) > 0 && parts[0] == "apis" {
		parts = parts[min(i+1, len(parts)):]
	} else {
		parts = parts[min(i, len(parts)):]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return "get versions"
	}
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		return "watch " + parts[0]
	case r.Method == http.MethodGet && len(parts) == 1:
		return "list " + parts[0]
	case r.Method == http.MethodPatch && strings.Contains(r.Header.Get("Content-Type"), "apply"):
		return "apply " + parts[0]
	}
	return strings.ToLower(r.Method) + " " + parts[0]
}

// dial makes connections whose bytes are counted.
func (m *meter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return wire{c, m}, nil
}

type wire struct {
	net.Conn

	meter *meter
}

// Read implements net.Conn.
func (w wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.meter.received.Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (w wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.meter.sent.Add(int64(n))
	return n, err
}

// minus returns the increase since an earlier count.
func minus(now, before map[string]int) map[string]int {
	out := maps.Clone(now)
	for k, n := range before {
		out[k] -= n
	}
	return out
}
