package real

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real/internal/host"
	"github.com/trimtab/trimtab/test/real/registry"
)

const (
	startTimeout = 60 * time.Second // the first start on a busy machine
	stopTimeout  = 20 * time.Second
	callTimeout  = 60 * time.Second
	logTail      = 60 // lines shown after a failure
)

// Client is both halves of the CRI on one connection.
type Client struct {
	cri.RuntimeServiceClient
	cri.ImageServiceClient
}

// Containerd is one private runtime. Its methods may be called from several goroutines, but those that take no Try
// form of their own end the test and so belong to the test's goroutine.
type Containerd struct {
	t testing.TB
	*instance
}

type instance struct {
	dir, parent string // parent is the cgroup above all pods of this instance
	release     Release
	tools       *tools
	images      *registry.Registry
	hierarchies []host.Hierarchy
	connection  *grpc.ClientConn
	client      Client // of what plays the kubelet
	direct      Client // of the harness itself
	dismiss     func() // tells the watcher that the test clears up by itself

	making sync.Mutex // one at a time makes cgroups: a half-made v1 cpuset would pass its emptiness on

	mu         sync.Mutex
	process    *os.Process   // nil while stopped
	exited     chan struct{} // closed when process is gone
	pods       map[PodID]podRecord
	containers map[ContainerID]containerRecord
}

// Start runs a private containerd until the test ends. It needs root; without, the test is skipped, except in CI.
func Start(t testing.TB, opts ...Option) *Containerd {
	t.Helper()
	needRoot(t)
	s := &settings{nri: true, nriTimeout: 10 * time.Second, nriRegistration: 20 * time.Second, logLevel: "info"}
	for _, o := range opts {
		o(s)
	}
	c := &Containerd{t, &instance{pods: map[PodID]podRecord{}, containers: map[ContainerID]containerRecord{}}}
	if err := c.setUp(s); err != nil {
		t.Fatalf("real containerd: %v", err)
	}
	if err := c.start(); err != nil {
		t.Fatalf("real containerd: %v", err)
	}
	if err := c.pull(); err != nil {
		t.Fatalf("real containerd: %v", err)
	}
	return c
}

// For is the same runtime with its failures reported to another test, a subtest for example.
func (c *Containerd) For(t testing.TB) *Containerd {
	t.Helper()
	return &Containerd{t, c.instance}
}

// setUp makes folder, images, cgroup parent and configuration. What it has made by the time of an error is cleaned up.
func (c *Containerd) setUp(s *settings) (err error) {
	if s.release != Newest && !private() {
		return errors.New("this release keeps its shims' sockets in /run/containerd: the test has to call Privately")
	}
	c.release = s.release
	if c.tools, err = prepared(); err != nil {
		return err
	}
	if c.hierarchies, err = host.Hierarchies(); err != nil {
		return err
	}
	// Short and outside t.TempDir: a socket path ends at 107 bytes.
	if c.dir, err = os.MkdirTemp("/tmp", "tt"); err != nil {
		return err
	}
	c.parent = fmt.Sprintf("/trimtab-test-%d-%s", os.Getpid(), rand.Text()[:8])
	c.t.Cleanup(c.cleanUp)
	for _, sub := range []string{"s", "log", "bin", "nri/plugins", "nri/conf.d", "cni/bin", "cni/conf.d", "certs.d"} {
		if err := os.MkdirAll(filepath.Join(c.dir, sub), 0o755); err != nil {
			return err
		}
	}
	if err := c.watch(); err != nil {
		return err
	}
	if err := host.Make(c.hierarchies, c.parent); err != nil {
		return err
	}
	if c.images, err = registry.Start(c.tools.probe); err != nil {
		return err
	}
	c.connection, err = grpc.NewClient("unix://"+c.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(quickReconnect))
	if err != nil {
		return err
	}
	c.direct = Client{cri.NewRuntimeServiceClient(c.connection), cri.NewImageServiceClient(c.connection)}
	c.client = c.direct
	text := s.config(c.dir, c.images.Image("pause"), c.tools)
	return os.WriteFile(c.configFile(), []byte(text), 0o600)
}

// watch leaves a process behind that clears up should this one die before its own cleanup.
func (c *Containerd) watch() error {
	program := filepath.Join(c.dir, "bin/reap")
	// A fork by another goroutine meanwhile would inherit the open file, and a file open for writing cannot be run.
	syscall.ForkLock.RLock()
	err := os.WriteFile(program, c.tools.reap, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, c.dir, c.parent)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the test, not for its cleaner
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.dismiss = func() {
		_, _ = io.WriteString(pipe, "done")
		pipe.Close()
		_ = cmd.Wait()
	}
	return nil
}

func (c *Containerd) configFile() string { return filepath.Join(c.dir, "config.toml") }

func (c *Containerd) logFile() string { return filepath.Join(c.dir, "containerd.log") }

// Socket is the CRI socket's path.
func (c *Containerd) Socket() string { return filepath.Join(c.dir, "c.sock") }

// NRISocket is where NRI plugins connect.
func (c *Containerd) NRISocket() string { return filepath.Join(c.dir, "nri.sock") }

// Through has all further calls made over another socket, that of a proxy.
func (c *Containerd) Through(socket string) {
	c.t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(asKubelet(quickReconnect)), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	c.client = Client{cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)}
}

// Direct is the runtime itself, whatever is between.
func (c *Containerd) Direct() Client { return c.direct }

// Image is the reference of one of the registry's images.
func (c *Containerd) Image(name string) string { return c.images.Image(name) }

// Archive is one of the registry's images as a file to import, which will be called ref.
func (c *Containerd) Archive(name, ref string) []byte {
	c.t.Helper()
	b, err := c.images.Archive(name, ref)
	c.check("image archive", err)
	return b
}

// CgroupParent is the cgroup, as a path from the root of every hierarchy, above all pods of this runtime.
func (c *Containerd) CgroupParent() string { return c.parent }

// CRI gives the raw clients, for calls the harness has no word for.
func (c *Containerd) CRI() Client { return c.client }

// PID is that of the running daemon, 0 while it is stopped.
func (c *Containerd) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return 0
	}
	return c.process.Pid
}

// start runs the daemon and waits until the CRI answers.
func (c *Containerd) start() error {
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	program := c.tools.containerd(c.release)
	cmd := exec.Command(program, "--config", c.configFile())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "TMPDIR="+c.dir, "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	c.mu.Lock()
	c.process, c.exited = cmd.Process, exited
	c.mu.Unlock()
	return poll(startTimeout, func() error {
		select {
		case <-exited:
			return fmt.Errorf("containerd ended at start: %v", cmd.ProcessState)
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := c.direct.Version(ctx, &cri.VersionRequest{})
		return err
	})
}

// end signals the daemon and waits until it is gone. Shims and containers go on.
func (c *Containerd) end(signal syscall.Signal) error {
	c.mu.Lock()
	process, exited := c.process, c.exited
	c.process = nil
	c.mu.Unlock()
	if process == nil {
		return nil
	}
	_ = process.Signal(signal)
	select {
	case <-exited:
		return nil
	case <-time.After(stopTimeout):
		_ = process.Kill()
		<-exited
		return fmt.Errorf("containerd did not end within %v of %v", stopTimeout, signal)
	}
}

// Stop ends the daemon in order; pods go on. StartAgain brings it back.
func (c *Containerd) Stop() {
	c.t.Helper()
	c.check("stop containerd", c.end(syscall.SIGTERM))
}

// Kill ends the daemon with SIGKILL; pods go on.
func (c *Containerd) Kill() {
	c.t.Helper()
	c.check("kill containerd", c.end(syscall.SIGKILL))
}

// StartAgain runs the daemon on the state it left and waits until the CRI answers.
func (c *Containerd) StartAgain() {
	c.t.Helper()
	c.check("start containerd again", c.start())
}

// Restart is Stop and StartAgain.
func (c *Containerd) Restart() {
	c.t.Helper()
	c.Stop()
	c.StartAgain()
}

// RestartWithNRI is Restart with NRI switched on or off.
func (c *Containerd) RestartWithNRI(on bool) {
	c.t.Helper()
	c.Stop()
	text, err := os.ReadFile(c.configFile())
	c.check("read containerd's configuration", err)
	was, is := fmt.Appendf(nil, "disable = %v", on), fmt.Appendf(nil, "disable = %v", !on)
	if text = bytes.Replace(text, was, is, 1); !bytes.Contains(text, is) {
		c.t.Fatalf("containerd's configuration does not say whether NRI is on")
	}
	c.check("write containerd's configuration", os.WriteFile(c.configFile(), text, 0o600))
	c.StartAgain()
}

// Kill9AndRestart is Kill and StartAgain.
func (c *Containerd) Kill9AndRestart() {
	c.t.Helper()
	c.Kill()
	c.StartAgain()
}

func (c *Containerd) pull() error {
	ctx, cancel := c.call()
	defer cancel()
	for _, name := range []string{"pause", "probe"} {
		spec := &cri.ImageSpec{Image: c.images.Image(name)}
		if _, err := c.client.PullImage(ctx, &cri.PullImageRequest{Image: spec}); err != nil {
			return fmt.Errorf("pull %s: %w", name, err)
		}
	}
	return nil
}

func (c *Containerd) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callTimeout)
}

func (c *Containerd) check(what string, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
}
