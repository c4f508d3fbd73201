package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real/registry"
	"github.com/trimtab/trimtab/test/vm/wire"
)

// Stage is the state of a guest when a test gets it.
type Stage int

const (
	// Bare is a kernel with cgroups mounted, busybox (or systemd) and nothing else.
	Bare Stage = iota
	// Containerd has a running containerd with NRI enabled, and the images of the tests; a kubelet is
	// installed but not running.
	Containerd
)

func (s Stage) String() string { return []string{"bare", "containerd"}[s] }

// key returns what the stage's snapshot depends on, besides the disk.
func (s Stage) key() (string, error) {
	if s == Bare {
		return s.String(), nil
	}
	program, err := probe()
	if err != nil {
		return "", err
	}
	hash, err := tree{"/probe": {mode: 0o755, source: program}}.hash()
	return s.String() + hash, err
}

// probe builds the workload of all tests once per process.
var probe = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ttprobe")
	if err != nil {
		return "", err
	}
	atEnd(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "probe"), goBuild(context.Background(), dir, "test/real", "./probe")
})

// prepare brings a booted guest to its stage.
func (g Guest) prepare(ctx context.Context, c *channel) error {
	if g.Stage == Bare {
		return nil
	}
	if err := c.startContainerd(ctx, g.Systemd); err != nil {
		return err
	}
	if err := c.pull(ctx); err != nil {
		return err
	}
	// Otherwise every copy of the machine would write the pages that wait for the disk.
	return c.mustRun(ctx, "sync")
}

// mustRun runs a program that must exit with 0.
func (c *channel) mustRun(ctx context.Context, argv ...string) error {
	r, err := c.exec(ctx, wire.Command{Argv: argv})
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("%q ended with %d: %s%s%s", argv, r.Code, r.Err, r.Stdout, r.Stderr)
	}
	return err
}

const (
	// CRISocket is containerd's CRI socket.
	CRISocket = "/run/containerd/containerd.sock"
	// NRISocket is where NRI plugins connect.
	NRISocket = "/run/nri/nri.sock"
)

// containerdCommand runs containerd in a guest without a service manager.
var containerdCommand = []string{"/usr/local/bin/containerd", "--config", containerdConfig}

func (c *channel) startContainerd(ctx context.Context, systemd bool) error {
	if systemd {
		if err := c.mustRun(ctx, "systemctl", "start", "containerd"); err != nil {
			return err
		}
	} else if r, err := c.exec(ctx, wire.Command{Argv: containerdCommand, Log: "/var/log/containerd.log"}); err != nil || r.Err != "" {
		return fmt.Errorf("start containerd: %s (%w)", r.Err, err)
	}
	return c.containerdReady(ctx)
}

func (c *channel) containerdReady(ctx context.Context) error {
	conn, err := c.grpc(CRISocket)
	if err != nil {
		return err
	}
	defer conn.Close()
	var last error
	err = until(ctx, 50*time.Millisecond, func() (bool, error) {
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, last = cri.NewRuntimeServiceClient(conn).Version(try, &cri.VersionRequest{})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("containerd does not answer: %w (%w)", last, err)
	}
	return nil
}

// grpc returns a connection to a server on a unix socket of the guest.
func (c *channel) grpc(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:guest", grpc.WithContextDialer(c.dialer(socket)),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(quickReconnect))
}

// Image is the reference of an image in the guests: probe or pause.
func Image(name string) string { return "registry.test/" + name + ":1" }

// pull pulls the images from a registry on the host's loopback, which is 10.0.2.2 in a guest. The images get
// names without a port, because a snapshot outlives the registry.
func (c *channel) pull(ctx context.Context) error {
	program, err := probe()
	if err != nil {
		return err
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	r, err := registry.Start(binary)
	if err != nil {
		return err
	}
	defer r.Close()
	_, port, _ := strings.Cut(r.Address(), ":")
	hosts := fmt.Sprintf("server = %q\n", "http://10.0.2.2:"+port)
	if err := c.put(ctx, "/etc/containerd/certs.d/registry.test/hosts.toml", 0o644, strings.NewReader(hosts)); err != nil {
		return err
	}
	conn, err := c.grpc(CRISocket)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, name := range []string{"pause", "probe"} {
		spec := &cri.ImageSpec{Image: Image(name)}
		if _, err := cri.NewImageServiceClient(conn).PullImage(ctx, &cri.PullImageRequest{Image: spec}); err != nil {
			return fmt.Errorf("pull %s: %w", name, err)
		}
	}
	return nil
}
