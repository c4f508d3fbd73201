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

// Stage says what runs in a guest when Start returns the guest to a test.
type Stage int

const (
	// Bare means a kernel, mounted cgroups, and busybox or systemd. Nothing else runs.
	Bare Stage = iota
	// Containerd means that containerd runs, with NRI enabled and with the images of the tests. A kubelet is installed,
	// but does not run.
	Containerd
)

func (s Stage) String() string { return []string{"bare", "containerd"}[s] }

// key returns a text that changes when the stage changes. It is a part of the key of a snapshot.
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

// probe returns the path of the program that runs in the containers of all tests (test/real/probe). It builds the
// program once per process.
var probe = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ttprobe")
	if err != nil {
		return "", err
	}
	atEnd(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "probe"), goBuild(context.Background(), dir, "test/real", "./probe")
})

// prepare brings a booted guest to the stage g.Stage.
func (g Guest) prepare(ctx context.Context, c *guestClient) error {
	if g.Stage == Bare {
		return nil
	}
	if err := c.startContainerd(ctx, g.Systemd); err != nil {
		return err
	}
	if err := c.pull(ctx); err != nil {
		return err
	}
	// Write all dirty pages to the disk now. Otherwise each guest that is restored from the snapshot would write them.
	return c.runChecked(ctx, "sync")
}

// runChecked runs a program that must exit with 0.
func (c *guestClient) runChecked(ctx context.Context, argv ...string) error {
	r, err := c.exec(ctx, wire.Command{Argv: argv})
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("%q ended with exit code %d: %s%s%s", argv, r.Code, r.Err, r.Stdout, r.Stderr)
	}
	return err
}

const (
	// CRISocket is the path of containerd's CRI socket in a guest.
	CRISocket = "/run/containerd/containerd.sock"
	// NRISocket is the path in a guest of the socket to which NRI plugins connect.
	NRISocket = "/run/nri/nri.sock"
)

// containerdCommand is the command line of containerd in a guest with busybox.
var containerdCommand = []string{"/usr/local/bin/containerd", "--config", containerdConfig}

// startContainerd starts containerd, and waits until containerd answers CRI calls.
func (c *guestClient) startContainerd(ctx context.Context, systemd bool) error {
	if systemd {
		if err := c.runChecked(ctx, "systemctl", "start", "containerd"); err != nil {
			return err
		}
	} else if r, err := c.exec(ctx, wire.Command{Argv: containerdCommand, Log: "/var/log/containerd.log"}); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	} else if r.Err != "" {
		return fmt.Errorf("start containerd: %s", r.Err)
	}
	return c.awaitContainerd(ctx)
}

// awaitContainerd waits until containerd answers CRI calls.
func (c *guestClient) awaitContainerd(ctx context.Context) error {
	conn, err := c.newGRPCConn(CRISocket)
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
		return fmt.Errorf("containerd does not answer CRI calls: %w (%w)", last, err)
	}
	return nil
}

// newGRPCConn returns a gRPC connection to a server on a Unix socket of the guest.
func (c *guestClient) newGRPCConn(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:guest", grpc.WithContextDialer(c.dialer(socket)),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(quickReconnect))
}

// Image returns the reference of an image in the guests. The images are probe and pause.
func Image(name string) string { return "registry.test/" + name + ":1" }

// pull pulls the images from a registry on the host's loopback, which runs only during this call. In a guest, the host's
// loopback has the address 10.0.2.2. The names of the images in the snapshot have no port, because the registry gets
// another port in each run.
func (c *guestClient) pull(ctx context.Context) error {
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
	conn, err := c.newGRPCConn(CRISocket)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, name := range []string{"pause", "probe"} {
		spec := &cri.ImageSpec{Image: Image(name)}
		if _, err := cri.NewImageServiceClient(conn).PullImage(ctx, &cri.PullImageRequest{Image: spec}); err != nil {
			return fmt.Errorf("pull the image %s: %w", name, err)
		}
	}
	return nil
}
