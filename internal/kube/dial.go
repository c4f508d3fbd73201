package kube

import (
	"context"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/internal/sleep"
)

// maxRedialWait limits the random wait before each connection except the first.
const maxRedialWait = 5 * time.Second

// dialFunc is a function that makes a connection, such as net.Dialer.DialContext.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// spreadRedials returns a dialFunc that waits a random time, at most spread, before each connection except the first.
// An API server that ends, or that closes its connections (GOAWAY), disconnects the agents of all nodes at the same
// time. Without a wait, all agents would connect to the other servers at the same moment. client-go does not wait: it
// connects again at the next request.
func spreadRedials(dial dialFunc, spread time.Duration) dialFunc {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext // the same times as in client-go
	}
	var dialed atomic.Bool
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if dialed.Swap(true) && !sleep.For(ctx, rand.N(spread)) { //nolint:gosec // only spreads load
			return nil, ctx.Err()
		}
		return dial(ctx, network, address)
	}
}
