package vm

import (
	"context"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// quickReconnect makes a client reconnect soon after a test has restarted a daemon. With gRPC's default, the client
// waits for seconds.
var quickReconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.2, MaxDelay: 500 * time.Millisecond},
	MinConnectTimeout: 5 * time.Second,
}

// dialer returns a function for gRPC that connects to a Unix socket of the guest.
func (c *guestClient) dialer(socket string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, _ string) (net.Conn, error) { return c.dial(ctx, "unix", socket) }
}

// CRI has the runtime and image services of the CRI on one connection.
type CRI struct {
	cri.RuntimeServiceClient
	cri.ImageServiceClient
}

// CRI connects to a CRI server at a Unix socket of the guest, such as containerd. The connection survives restarts of
// the server, and ends with the test.
func (m *Machine) CRI(socket string) CRI {
	m.t.Helper()
	conn, err := m.client.newGRPCConn(socket)
	if err != nil {
		m.t.Fatalf("%s: connect to the CRI server: %v", m.Guest, err)
	}
	m.t.Cleanup(func() { conn.Close() })
	return CRI{cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)}
}

// StopContainerd stops containerd. Pods keep running.
func (m *Machine) StopContainerd() {
	m.t.Helper()
	if m.Guest.Systemd {
		m.Run("systemctl", "stop", "containerd")
		return
	}
	m.Sh(`killall -TERM containerd; i=0; while pidof containerd >/dev/null; do sleep 0.1; i=$((i+1)); [ $i -lt 300 ]; done`)
}

// StartContainerd starts containerd again, and waits until containerd answers CRI calls.
func (m *Machine) StartContainerd() {
	m.t.Helper()
	ctx, cancel := callContext()
	defer cancel()
	if err := m.client.startContainerd(ctx, m.Guest.Systemd); err != nil {
		m.t.Fatalf("%s: %v", m.Guest, err)
	}
}

// WithoutNRI disables NRI in containerd's configuration, and restarts containerd.
func (m *Machine) WithoutNRI() {
	m.t.Helper()
	const table = "[plugins.'io.containerd.nri.v1.nri']\n"
	text := m.Read(containerdConfig) + "\n"
	if !strings.Contains(text, table) {
		m.t.Fatalf("containerd's configuration has no table for NRI:\n%s", text)
	}
	m.StopContainerd()
	m.Put(containerdConfig, 0o644, []byte(strings.Replace(text, table, table+"  disable = true\n", 1)))
	m.Run("rm", "-f", NRISocket)
	m.StartContainerd()
	m.Sh("[ ! -e " + NRISocket + " ]")
}
