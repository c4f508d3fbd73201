package real_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
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

// startProxy starts an agent as CRI proxy between the test's kubelet client and the runtime.
func startProxy(t testing.TB, c *real.Containerd, config string) *trimtab {
	t.Helper()
	a := newTrimtab(t)
	a.configure(c, a.between(c)+config)
	a.run()
	a.attached()
	c.Through(a.proxy())
	return a
}

// between returns the configuration of a CRI proxy in front of the runtime.
func (a *trimtab) between(c *real.Containerd) string {
	return fmt.Sprintf("attach: cri\ncri: {endpoint: \"unix://%s\", socket: %s}\n", c.Socket(), a.proxy())
}

func (a *trimtab) proxy() string { return filepath.Join(a.dir, "cri.sock") }

// TestPromiseThroughProxy is TestPromise through the CRI proxy, on a runtime without NRI.
func TestPromiseThroughProxy(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t, real.WithoutNRI())
	needV1(t, c)
	playPromise(t, c, startProxy(t, c, ""), "cri")
}

// TestProxyContainerd16 does the same with Debian's containerd 1.6, which has no NRI.
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

// TestProxyKilled kills the agent repeatedly, during calls, while pods are created and removed. Repeated calls succeed
// as soon as the agent is back. No container moves or gets an owner's CPU, and nothing is left over.
func TestProxyKilled(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t, real.WithoutNRI())
	needV1(t, c)
	a := startProxy(t, c, "")
	owner := c.RunContainer(c.RunPod(owning("db", "1")), real.ContainerSpec{Name: "db", Resources: oneCPU})
	silent := c.RunContainer(c.RunPod(plain("silent", "")), real.ContainerSpec{Name: "app"})
	pid := c.ContainerPID(owner)
	sampler := c.Sample(real.NoSharing(func(dir string) bool { return baseOf(dir) == string(owner) }))

	l := load{c: c, stop: make(chan struct{})}
	var all errgroup
	for _, class := range []string{"LS", "BE"} {
		all.run(func() error { return l.churn(class) })
	}
	var gaps []time.Duration
	for i := range rounds(t, 20) {
		l.wait(t, int64(4+i%9))
		a.kill()
		killed := time.Now()
		a.run()
		answers(t, c)
		gaps = append(gaps, time.Since(killed).Round(time.Millisecond))
		same(t, "owner", c.KernelFile(owner, "cpuset.cpus"), "1")
		same(t, "silent", c.KernelFile(silent, "cpuset.cpus"), "0")
	}
	close(l.stop)
	if err := all.wait(); err != nil {
		t.Error(err)
	}
	found := sampler.Stop()
	t.Log(found)
	if found.Violations > 0 || found.Samples == 0 {
		t.Errorf("CPUs were shared: %v\n%s", found, strings.Join(found.First, "\n"))
	}
	slices.Sort(gaps)
	t.Logf("%d kills; back after %v (median), %v (most); %d pods ran in %d calls, %d of them repeated, %d containers created again",
		len(gaps), gaps[len(gaps)/2], gaps[len(gaps)-1], l.pods.Load(), l.calls.Load(), l.again.Load(), l.anew.Load())
	if l.pods.Load() == 0 {
		t.Error("no pod ran")
	}
	same(t, "process", c.ContainerPID(owner), pid)
	t.Logf("%d pods could not be removed, since containerd left the task of a start that a kill cancelled", l.left.Load())
	if l.left.Load() > 0 {
		a.restartRuntime(c)
	}
	if most := int64(2 + len(gaps)/20); l.left.Load() > most { // one in a hundred kills is usual
		t.Errorf("containerd left %d tasks after %d kills, want %d at most", l.left.Load(), len(gaps), most)
	}
	removeLeftPods(t, c, owner, silent)
	a.knowsOnly(1, owner, silent)
}

// answers waits until the runtime answers the kubelet client.
func answers(t testing.TB, c *real.Containerd) {
	t.Helper()
	real.Eventually(t, patiently, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := c.CRI().Version(ctx, &cri.VersionRequest{})
		return err
	})
}

// load creates and removes pods like a kubelet: it repeats calls that fail because the runtime does not answer. It
// repeats a creation whose answer was lost, and a container whose start was cancelled, as the next attempt.
type load struct {
	c    *real.Containerd
	stop chan struct{}
	over atomic.Bool // the error that ended it

	pods, calls, again, anew atomic.Int64
	left                     atomic.Int64 // pods that stay, since containerd left a task
}

// wait returns when more calls have begun, during the last one.
func (l *load) wait(t *testing.T, more int64) {
	t.Helper()
	enough := l.calls.Load() + more
	real.Eventually(t, 3*patiently, func() error {
		if n := l.calls.Load(); n < enough && !l.over.Load() {
			return fmt.Errorf("%d calls were begun, want %d", n, enough)
		}
		return nil
	})
}

func (l *load) churn(class string) (err error) {
	defer func() { l.over.Store(err != nil) }()
	for i := 0; ; i++ {
		select {
		case <-l.stop:
			return nil
		default:
		}
		name := strings.ToLower(class) + fmt.Sprint("-", i)
		pod, err := retry(l, func(try int) (real.PodID, error) { return l.c.TryRunPod(plain(fmt.Sprint(name, "-", try), class)) })
		if err != nil {
			return fmt.Errorf("run pod: %w", err)
		}
		cut, err := l.container(pod)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		_, err = retry(l, func(int) (any, error) { return nil, l.c.TryRemovePod(pod) })
		switch {
		case err == nil:
			l.pods.Add(1)
		case slices.ContainsFunc(cut, func(id real.ContainerID) bool { return leftTask(l.c, id, err) }):
			l.left.Add(1)
		default:
			return fmt.Errorf("remove pod: %w", err)
		}
	}
}

// container repeats a container of a pod until it has run once, and returns the earlier ones, whose starts were
// cancelled.
func (l *load) container(pod real.PodID) (cut []real.ContainerID, err error) {
	for attempt := range uint32(10) {
		id, err := retry(l, func(try int) (real.ContainerID, error) {
			return l.c.TryCreateContainer(pod, real.ContainerSpec{Name: fmt.Sprint("app", try), Attempt: attempt})
		})
		if err != nil {
			return cut, fmt.Errorf("create: %w", err)
		}
		ended := false
		if _, err := retry(l, func(try int) (any, error) {
			err := l.c.TryStartContainer(id)
			switch {
			case err == nil || state(l.c, id) == cri.ContainerState_CONTAINER_RUNNING: // the answer to this or an earlier call may have been lost
				return nil, nil
			case try > 0 && status.Code(err) == codes.Unknown: // the runtime has ended a container whose call was cancelled
				ended = true
				return nil, nil
			}
			return nil, err
		}); err != nil {
			return cut, fmt.Errorf("start: %w", err)
		}
		if ended {
			cut = append(cut, id)
			l.anew.Add(1)
			continue
		}
		seen, err := l.c.TryFirstView(id)
		if err == nil && seen.Affinity != "0" {
			err = fmt.Errorf("%s started on CPUs %s beside the owner of 1", id, seen.Affinity)
		}
		return cut, err
	}
	return cut, errors.New("ten starts were cancelled")
}

// containerStatus returns the status from the runtime itself.
func containerStatus(c *real.Containerd, id real.ContainerID) (*cri.ContainerStatus, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patiently)
	defer cancel()
	answer, err := c.Direct().ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: string(id)})
	return answer.GetStatus(), err
}

func state(c *real.Containerd, id real.ContainerID) cri.ContainerState {
	s, err := containerStatus(c, id)
	if err != nil {
		return cri.ContainerState_CONTAINER_UNKNOWN
	}
	return s.GetState()
}

// retry repeats a call while the runtime does not answer.
func retry[T any](l *load, f func(try int) (T, error)) (T, error) {
	for try := 0; ; try++ {
		l.calls.Add(1)
		out, err := f(try)
		if !lost(err) && !leftover(err) && !starting(err) || try == 200 {
			return out, err
		}
		l.again.Add(1)
		time.Sleep(50 * time.Millisecond) // a kubelet's pause
	}
}

func code(err error) string { return status.Code(err).String() }

// lost reports whether a call failed because no server answered.
func lost(err error) bool {
	var st interface{ GRPCStatus() *status.Status }
	return errors.As(err, &st) && (st.GRPCStatus().Code() == codes.Unavailable || st.GRPCStatus().Code() == codes.Canceled)
}

// leftover reports whether a call failed because of a snapshot directory that a killed containerd had not committed.
// The next containerd uses its number again, until it has cleaned up.
func leftover(err error) bool {
	return err != nil && strings.Contains(err.Error(), "failed to rename: ") && strings.Contains(err.Error(), "/snapshots/new-") &&
		strings.HasSuffix(err.Error(), "file exists")
}

// starting reports whether a pod could not be removed because a cancelled start completed after the runtime had stopped
// the pod's containers. A kubelet stops and removes the pod again.
func starting(err error) bool {
	return err != nil && strings.HasPrefix(status.Convert(err).Message(), "failed to remove container ") &&
		strings.HasSuffix(err.Error(), "container is still running, to stop first")
}

// TestProxyStreams talks to a process in a container, with and without a terminal, and compares with a direct stream.
func TestProxyStreams(t *testing.T) {
	t.Parallel()
	streams(t, real.Start(t, real.WithoutNRI()))
}

// TestProxyStreams16 does the same with Debian's containerd 1.6.
func TestProxyStreams16(t *testing.T) {
	t.Parallel()
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if !real.Privately(t, builtBinary+"="+program) {
		return
	}
	streams(t, real.Start(t, real.WithRelease(real.V16), real.WithoutNRI()))
}

func streams(t *testing.T, c *real.Containerd) {
	t.Helper()
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

// converse sends a text over a stream of the runtime and returns the answer (channel protocol of Kubernetes 1.4 and
// later: the first byte of a message is its stream).
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

// resident returns the agent's resident memory in KiB.
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
