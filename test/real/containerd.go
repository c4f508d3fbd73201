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
	startTimeout = 60 * time.Second // until the CRI answers; the first start on a busy machine is slow
	stopTimeout  = 20 * time.Second // until the daemon has ended after a signal
	callTimeout  = 60 * time.Second // of one CRI call
	logTail      = 60               // lines of containerd's log that a failed test shows
)

// Client has the runtime and image services of the CRI on one connection.
type Client struct {
	cri.RuntimeServiceClient
	cri.ImageServiceClient
}

// Containerd is one private runtime. Any goroutine may call the methods with the prefix Try. All other methods can end
// the test, so only the goroutine of the test may call them.
type Containerd struct {
	t testing.TB
	*instance
}

// instance is a private runtime. Several Containerd values of different tests may have the same instance.
type instance struct {
	dir, parent string // dir has all files, and parent is the cgroup above all pods of this instance
	release     Release
	tools       *tools
	images      *registry.Registry
	hierarchies []host.Hierarchy
	connection  *grpc.ClientConn
	client      Client // for the calls that a kubelet would make; Through changes it
	direct      Client // connected to containerd itself
	dismiss     func() // tells the watcher process that the test cleans up by itself

	// cgroupMu is held while a cgroup is made. A new cpuset of cgroup version 1 has no CPUs at first. A cgroup that is
	// made below it at this time would also get no CPUs.
	cgroupMu sync.Mutex

	mu         sync.Mutex
	process    *os.Process   // nil while containerd is stopped
	exited     chan struct{} // closed when the process has ended
	pods       map[PodID]podRecord
	containers map[ContainerID]containerRecord
}

// Start runs a private containerd until the test ends. If the process does not run as root, Start skips the test, or
// fails it in CI.
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

// For returns the same runtime for use in another test, such as a subtest. Failures of the result's methods end that
// test.
func (c *Containerd) For(t testing.TB) *Containerd {
	t.Helper()
	return &Containerd{t, c.instance}
}

// setUp makes the directory, the images, the cgroup parent and the configuration. At the end of the test, also after an
// error, cleanUp removes them.
func (c *Containerd) setUp(s *settings) (err error) {
	if s.release != Newest && !hasPrivateMounts() {
		return errors.New("this release keeps its shims' sockets in /run/containerd: the test must call Privately")
	}
	c.release = s.release
	if c.tools, err = prepared(); err != nil {
		return err
	}
	if c.hierarchies, err = host.Hierarchies(); err != nil {
		return err
	}
	// Not t.TempDir: a socket path has at most 107 bytes.
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
	if err := c.startReaper(); err != nil {
		return err
	}
	if err := host.MakeCgroup(c.hierarchies, c.parent); err != nil {
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

// startReaper starts the program reap, which cleans up if the test process ends before its own cleanup.
func (c *Containerd) startReaper() error {
	program := filepath.Join(c.dir, "bin/reap")
	// A concurrent fork would inherit the open file, and a file that is open for writing cannot be executed.
	syscall.ForkLock.RLock()
	err := os.WriteFile(program, c.tools.reap, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, c.dir, c.parent)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C must end the test process, but not the program reap
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

// configFile returns the path of containerd's configuration file.
func (c *Containerd) configFile() string { return filepath.Join(c.dir, "config.toml") }

// logFile returns the path of containerd's log.
func (c *Containerd) logFile() string { return filepath.Join(c.dir, "containerd.log") }

// Socket returns the path of the CRI socket.
func (c *Containerd) Socket() string { return filepath.Join(c.dir, "c.sock") }

// NRISocket returns the path of the socket to which NRI plugins connect.
func (c *Containerd) NRISocket() string { return filepath.Join(c.dir, "nri.sock") }

// Through makes all later calls use another socket, such as a proxy's.
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

// Direct returns a client of the runtime itself, without a proxy.
func (c *Containerd) Direct() Client { return c.direct }

// Image returns the reference of one of the registry's images.
func (c *Containerd) Image(name string) string { return c.images.Image(name) }

// Archive returns one of the registry's images as an archive. A runtime that imports it stores the image under the name
// ref.
func (c *Containerd) Archive(name, ref string) []byte {
	c.t.Helper()
	b, err := c.images.Archive(name, ref)
	c.check("make the archive of an image", err)
	return b
}

// CgroupParent returns the cgroup above all pods of this runtime, as a path from the root of every hierarchy.
func (c *Containerd) CgroupParent() string { return c.parent }

// CRI returns the client of the CRI, for calls for which Containerd has no method.
func (c *Containerd) CRI() Client { return c.client }

// PID returns the pid of the daemon; 0 while the daemon is stopped.
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

// end sends a signal to the daemon and waits until the daemon has ended. Shims and containers keep running.
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
		return fmt.Errorf("containerd did not end within %v after the signal %q", stopTimeout, signal)
	}
}

// Stop ends the daemon with SIGTERM. Pods keep running. StartAgain starts it again.
func (c *Containerd) Stop() {
	c.t.Helper()
	c.check("stop containerd", c.end(syscall.SIGTERM))
}

// Kill ends the daemon with SIGKILL. Pods keep running.
func (c *Containerd) Kill() {
	c.t.Helper()
	c.check("kill containerd", c.end(syscall.SIGKILL))
}

// StartAgain starts the stopped daemon with its old state, and waits until the CRI answers.
func (c *Containerd) StartAgain() {
	c.t.Helper()
	c.check("start containerd again", c.start())
}

// Restart ends the daemon with SIGTERM and starts it again.
func (c *Containerd) Restart() {
	c.t.Helper()
	c.Stop()
	c.StartAgain()
}

// RestartWithNRI ends the daemon with SIGTERM and starts it again with NRI enabled or disabled.
func (c *Containerd) RestartWithNRI(on bool) {
	c.t.Helper()
	c.Stop()
	text, err := os.ReadFile(c.configFile())
	c.check("read containerd's configuration", err)
	was, is := fmt.Appendf(nil, "disable = %v", on), fmt.Appendf(nil, "disable = %v", !on)
	if text = bytes.Replace(text, was, is, 1); !bytes.Contains(text, is) {
		c.t.Fatalf("containerd's configuration has no line that enables or disables NRI")
	}
	c.check("write containerd's configuration", os.WriteFile(c.configFile(), text, 0o600))
	c.StartAgain()
}

// Kill9AndRestart ends the daemon with SIGKILL and starts it again.
func (c *Containerd) Kill9AndRestart() {
	c.t.Helper()
	c.Kill()
	c.StartAgain()
}

// pull pulls the images of the pause container and the probe.
func (c *Containerd) pull() error {
	ctx, cancel := c.callContext()
	defer cancel()
	for _, name := range []string{"pause", "probe"} {
		spec := &cri.ImageSpec{Image: c.images.Image(name)}
		if _, err := c.client.PullImage(ctx, &cri.PullImageRequest{Image: spec}); err != nil {
			return fmt.Errorf("pull %s: %w", name, err)
		}
	}
	return nil
}

// callContext returns the context of one CRI call.
func (c *Containerd) callContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callTimeout)
}

// check ends the test if err is not nil. The parameter what names the failed operation.
func (c *Containerd) check(what string, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
}
