package status

import (
	"context"
	"net"

	"github.com/trimtab/trimtab/internal/socket"
)

// listen opens the socket for its owner alone. The caller calls release when the listener is closed.
func listen(ctx context.Context, path string) (l net.Listener, release func(), err error) {
	return socket.Claim(ctx, socket.Place{Path: path, Mode: 0o600, Key: "paths.statusSocket", By: "agent"})
}
