package socket

import (
	"context"
	"net"
)

// Dialer connects to a Unix socket. A nil Dialer connects with package net.
type Dialer func(ctx context.Context, path string) (net.Conn, error)

// Dial connects to a Unix socket.
func (d Dialer) Dial(ctx context.Context, path string) (net.Conn, error) {
	if d != nil {
		return d(ctx, path)
	}
	var system net.Dialer
	return system.DialContext(ctx, "unix", path)
}
