package kube

import (
	"context"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/internal/sleep"
)

// maxRedialWait bounds the wait before each connection except the first.
const maxRedialWait = 5 * time.Second

// dialFunc makes a connection.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// spreadRedials makes each connection but the first wait up to spread. An API server that ends, or that sheds its
// clients (GOAWAY), disconnects the agents of all nodes at the same time. Without a wait all agents would connect to
// the other servers at the same moment. client-go itself does not pause there: its HTTP/2 connects again at the next
// request.
func spreadRedials(dial dialFunc, spread time.Duration) dialFunc {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext // as client-go's
	}
	var before atomic.Bool
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if before.Swap(true) && !sleep.For(ctx, rand.N(spread)) { //nolint:gosec // only spreads load
			return nil, ctx.Err()
		}
		return dial(ctx, network, address)
	}
}
