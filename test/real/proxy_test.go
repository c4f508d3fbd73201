package real_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// startProxy starts an agent between what plays the kubelet and the runtime.
func startProxy(t *testing.T, c *real.Containerd, config string) *trimtab {
	t.Helper()
	a := newTrimtab(t)
	a.configure(c, fmt.Sprintf("attach: cri\ncri: {endpoint: \"unix://%s\", socket: %s}\n%s", c.Socket(), a.proxy(), config))
	a.run()
	a.attached()
	c.Through(a.proxy())
	return a
}

func (a *trimtab) proxy() string { return filepath.Join(a.dir, "cri.sock") }

// TestPromiseThroughProxy is the main job on a runtime without NRI.
func TestPromiseThroughProxy(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t, real.WithoutNRI())
	needV1(t, c)
	playPromise(t, c, startProxy(t, c, ""), "cri")
}

// TestProxyContainerd16 is the same before Debian's own containerd, which has no NRI at all.
func TestProxyContainerd16(t *testing.T) {
	t.Parallel()
	proxyOlder(t, real.V16, "containerd 1.6.")
}

func TestProxyContainerd17(t *testing.T) {
	t.Parallel()
	proxyOlder(t, real.V17, "containerd v1.7.")
}

func proxyOlder(t *testing.T, r real.Release, name string) {
	t.Helper()
	needTwoCPUs(t)
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if !real.Privately(t, builtBinary+"="+program) {
		return
	}
	c := real.Start(t, real.WithRelease(r), real.WithoutNRI())
	needV1(t, c)
	a := startProxy(t, c, "")
	playPromise(t, c, a, "cri")
	if n, err := a.status(); err != nil || len(n.Attachments) != 1 || !strings.HasPrefix(n.Attachments[0].Runtime, name) {
		t.Errorf("attached to %+v, %v", n.Attachments, err)
	}
}

// TestProxyKilled kills the agent over and over while pods come and go. What the kubelet repeats when its runtime does
// not answer succeeds as soon as the agent is back, nobody moves, and nothing is left over.
func TestProxyKilled(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t, real.WithoutNRI())
	needV1(t, c)
	a := startProxy(t, c, "")
	owner := c.RunContainer(c.RunPod(owning("db", "1")), real.ContainerSpec{Name: "db", Resources: oneCPU})
	silent := c.RunContainer(c.RunPod(plain("silent", "")), real.ContainerSpec{Name: "app"})
	pid := c.ContainerPID(owner)

	stop, done := make(chan struct{}), make(chan error, 1)
	var cycles atomic.Int32
	go func() { done <- churn(c, stop, &cycles) }()
	var gaps []time.Duration
	for range rounds(t, 4) {
		time.Sleep(300 * time.Millisecond) // of load between two kills
		a.kill()
		killed := time.Now()
		a.run()
		real.Eventually(t, patiently, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := c.CRI().Version(ctx, &cri.VersionRequest{})
			return err
		})
		gaps = append(gaps, time.Since(killed).Round(time.Millisecond))
		a.attached()
		same(t, "owner", c.KernelFile(owner, "cpuset.cpus"), "1")
		same(t, "silent", c.KernelFile(silent, "cpuset.cpus"), "0")
	}
	real.Eventually(t, patiently, func() error { // the last kill may have met the only one
		if cycles.Load() == 0 && len(done) == 0 {
			return errors.New("no pod came and went")
		}
		return nil
	})
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	t.Logf("gaps %v; %d pods came and went", gaps, cycles.Load())
	same(t, "process", c.ContainerPID(owner), pid)
	if n, err := a.status(); err != nil || len(n.CPUs.Grants) != 1 {
		t.Errorf("grants %+v, %v", n.CPUs.Grants, err)
	}
}

// churn lets pods come and go as a kubelet does: what fails because the runtime does not answer is tried again. A
// creation whose answer was lost is made anew as the next attempt.
func churn(c *real.Containerd, stop <-chan struct{}, cycles *atomic.Int32) error {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		pod, err := insist(func(try int) (real.PodID, error) { return c.TryRunPod(plain(fmt.Sprintf("churn-%d-%d", i, try), "LS")) })
		if err != nil {
			return err
		}
		id, err := insist(func(try int) (real.ContainerID, error) {
			return c.TryCreateContainer(pod, real.ContainerSpec{Name: fmt.Sprint("app", try)})
		})
		if err != nil {
			return err
		}
		cut := false // a start whose call was cut off has the runtime end the container; a kubelet makes another
		if _, err := insist(func(try int) (any, error) {
			err := c.TryStartContainer(id)
			switch {
			case err == nil || state(c, id) == cri.ContainerState_CONTAINER_RUNNING: // perhaps its answer was lost
				return nil, nil
			case try > 0 && status.Code(err) == codes.Unknown:
				cut = true
				return nil, nil
			}
			return nil, err
		}); err != nil {
			return err
		}
		if cut {
			if _, err := insist(func(int) (any, error) { return nil, c.TryRemovePod(pod) }); err != nil {
				return err
			}
			continue
		}
		seen, err := c.TryFirstView(id)
		if err != nil {
			return err
		}
		if seen.Affinity != "0" {
			return fmt.Errorf("%s started on CPUs %s beside the owner of 1", id, seen.Affinity)
		}
		if _, err := insist(func(int) (any, error) { return nil, c.TryRemovePod(pod) }); err != nil {
			return err
		}
		cycles.Add(1)
	}
}

// state asks the runtime itself.
func state(c *real.Containerd, id real.ContainerID) cri.ContainerState {
	ctx, cancel := context.WithTimeout(context.Background(), patiently)
	defer cancel()
	answer, err := c.Direct().ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: string(id)})
	if err != nil {
		return cri.ContainerState_CONTAINER_UNKNOWN
	}
	return answer.GetStatus().GetState()
}

// insist tries again while the runtime does not answer.
func insist[T any](f func(try int) (T, error)) (T, error) {
	for try := 0; ; try++ {
		out, err := f(try)
		var st interface{ GRPCStatus() *status.Status }
		lost := errors.As(err, &st) && (st.GRPCStatus().Code() == codes.Unavailable || st.GRPCStatus().Code() == codes.Canceled)
		if err == nil || !lost || try == 200 {
			return out, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestProxyStreams talks to a process in a container, with and without a terminal, and compares with the direct way.
func TestProxyStreams(t *testing.T) {
	t.Parallel()
	c := real.Start(t, real.WithoutNRI())
	id := c.RunContainer(c.RunPod(plain("shell", "")), real.ContainerSpec{Name: "app"})
	startProxy(t, c, "")
	for tty, until := range map[bool]string{false: "hello there", true: "terminal: true"} {
		var seen [2]string
		for i, client := range []real.Client{c.Direct(), c.CRI()} {
			ctx, cancel := context.WithTimeout(context.Background(), patiently)
			answer, err := client.Exec(ctx, &cri.ExecRequest{
				ContainerId: string(id), Cmd: []string{"/probe", "echo"}, Stdin: true, Stdout: true, Stderr: !tty, Tty: tty,
			})
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			if seen[i], err = converse(answer.Url, "hello there\n\x04", until); err != nil {
				t.Fatal(err)
			}
		}
		for i, way := range []string{"direct", "proxied"} {
			if !strings.Contains(seen[i], "hello there") || !strings.Contains(seen[i], until) {
				t.Errorf("%s conversation (terminal: %v): %q", way, tty, seen[i])
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patiently)
	defer cancel()
	direct, err1 := c.Direct().ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: string(id), Cmd: []string{"/probe", "echo"}, Timeout: 10})
	proxied, err2 := c.CRI().ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: string(id), Cmd: []string{"/probe", "echo"}, Timeout: 10})
	if err1 != nil || err2 != nil || direct.ExitCode != 7 || direct.String() != proxied.String() {
		t.Errorf("exec and wait: direct %v, %v; proxied %v, %v", direct, err1, proxied, err2)
	}
}

// converse says something over a stream of the runtime's own and returns what comes back (the channel protocol of
// Kubernetes 1.4 and later: the first byte of a message is its stream).
func converse(address, say, until string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	origin := *u
	u.Scheme = "ws"
	conf, err := websocket.NewConfig(u.String(), origin.String())
	if err != nil {
		return "", err
	}
	conf.Protocol = []string{"v4.channel.k8s.io"}
	ws, err := websocket.DialConfig(conf)
	if err != nil {
		return "", fmt.Errorf("dial %s: %w", u, err)
	}
	defer ws.Close()
	if err := ws.SetDeadline(time.Now().Add(patiently)); err != nil {
		return "", err
	}
	if err := websocket.Message.Send(ws, append([]byte{0}, say...)); err != nil {
		return "", err
	}
	heard := ""
	for !strings.Contains(heard, until) {
		var m []byte
		if err := websocket.Message.Receive(ws, &m); err != nil {
			return heard, nil
		}
		if len(m) > 1 && m[0] != 3 {
			heard += string(m[1:])
		}
	}
	return heard, nil
}

// TestProxyNotices ends containers behind the proxy's back, and restarts the runtime under it.
func TestProxyNotices(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t, real.WithoutNRI())
	needV1(t, c)
	a := startProxy(t, c, "")
	pod := c.RunPod(plain("brief", "LS"))
	id := c.RunContainer(pod, real.ContainerSpec{Name: "app", Args: []string{"exit", "0"}})
	c.WaitExit(id)
	gone := time.Now()
	real.Eventually(t, patiently, func() error {
		for _, w := range a.explain("shop", "brief", "") {
			if w.Container == "app" && w.Seat != "" && len(w.Values) > 0 {
				return fmt.Errorf("explain still says %+v", w)
			}
		}
		return nil
	})
	t.Logf("noticed after %v", time.Since(gone).Round(time.Millisecond))

	owner := c.RunContainer(c.RunPod(owning("db", "1")), real.ContainerSpec{Name: "db", Resources: oneCPU})
	c.Kill9AndRestart()
	a.attached()
	same(t, "owner after the runtime was killed", c.KernelFile(owner, "cpuset.cpus"), "1")
	late, err := insist(func(int) (real.ContainerID, error) {
		return c.TryCreateContainer(pod, real.ContainerSpec{Name: "late"})
	})
	if err != nil {
		t.Fatal(err)
	}
	c.StartContainer(late)
	same(t, "affinity of one started after it", c.FirstView(late).Affinity, "0")
	t.Logf("%d KiB resident", a.resident())
}

// resident is the agent's memory in KiB.
func (a *trimtab) resident() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	kib := 0
	for line := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &kib)
	}
	return kib
}
