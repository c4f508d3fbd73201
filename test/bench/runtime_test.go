package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

// host is a runtime with one plugin: the upstream library with its own socket in this process, and the plugin in
// another.
type host struct {
	*adaptation.Adaptation
	arm, dir string
	env      []string // more of the plugin's environment
	tree     tree
	units    []*unit // containers for Synchronize
	child    *exec.Cmd
	stop     io.Closer    // ends the child
	plugins  atomic.Int64 // synchronised plugins
	sync     time.Duration
	calls    atomic.Int64 // number of unsolicited updates of containers
	mu       sync.Mutex
	byID     map[string]*unit // receives unsolicited updates
}

// openHost starts the runtime's side without a plugin.
func openHost(b *testing.B, arm string, t tree) *host {
	b.Helper()
	h := &host{arm: arm, dir: b.TempDir(), tree: t, byID: map[string]*unit{}}
	for _, d := range []string{"plugins", "conf.d", "state"} {
		if err := os.Mkdir(filepath.Join(h.dir, d), 0o700); err != nil {
			b.Fatal(err)
		}
	}
	var err error
	h.Adaptation, err = adaptation.New("containerd", "v2.4.2", h.synchronize, h.updated,
		adaptation.WithSocketPath(h.socket()), adaptation.WithPluginPath(filepath.Join(h.dir, "plugins")),
		adaptation.WithPluginConfigPath(filepath.Join(h.dir, "conf.d")), adaptation.WithMetrics(counted{h: h}))
	if err == nil {
		err = h.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.detach(); h.Stop() })
	return h
}

func (h *host) socket() string { return filepath.Join(h.dir, "s") }

// synchronize sends all containers to a new plugin and measures the time.
func (h *host) synchronize(ctx context.Context, tell adaptation.SyncCB) error {
	var pods []*api.PodSandbox
	var ctrs []*api.Container
	for _, u := range h.units {
		pods, ctrs = append(pods, u.pod), append(ctrs, u.ctr)
	}
	start := time.Now()
	_, err := tell(ctx, pods, ctrs)
	h.sync = time.Since(start)
	return err
}

// updated receives unsolicited updates. A real runtime needs some 13 ms for each; here only the call takes time.
func (h *host) updated(_ context.Context, all []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, up := range all {
		h.calls.Add(1)
		if u := h.byID[up.ContainerId]; u != nil {
			u.update(up.GetLinux().GetResources())
		}
	}
	return nil, nil
}

// attach starts a plugin process and waits until it has synchronised.
func (h *host) attach(b *testing.B) {
	b.Helper()
	h.child = exec.Command(os.Args[0]) // ends with its standard input
	h.child.Env = append(os.Environ(), armVar+"="+h.arm, socketVar+"="+h.socket(), treeVar+"="+string(h.tree), stateVar+"="+filepath.Join(h.dir, "state"), policyVar+"="+*policy)
	h.child.Env = append(h.child.Env, h.env...)
	h.child.Stderr = os.Stderr
	var err error
	if h.stop, err = h.child.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	if err := h.child.Start(); err != nil {
		b.Fatal(err)
	}
	end := time.Now().Add(patience)
	for h.plugins.Load() == 0 {
		if time.Now().After(end) {
			b.Fatalf("%s did not attach", h.arm)
		}
		time.Sleep(time.Millisecond)
	}
}

// detach ends the plugin process, and returns when the runtime has noticed.
func (h *host) detach() {
	if h.child == nil {
		return
	}
	_ = h.stop.Close()
	late := time.AfterFunc(10*time.Second, func() { _ = h.child.Process.Kill() })
	_ = h.child.Wait()
	late.Stop()
	h.child = nil
	// The library notices the end only at the next call of the plugin.
	pod := &api.PodSandbox{Id: "nobody"}
	for h.plugins.Load() > 0 {
		_ = h.StopPodSandbox(context.Background(), &adaptation.StopPodSandboxRequest{Pod: pod})
		time.Sleep(time.Millisecond)
	}
}

// memory returns the kernel's memory values of the plugin process, in KiB.
func (h *host) memory(b *testing.B) map[string]int {
	b.Helper()
	return memoryOf(b, h.child.Process.Pid)
}

func memoryOf(b *testing.B, pid int) map[string]int {
	b.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	out := map[string]int{}
	for s := bufio.NewScanner(f); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), ":")
		var kib int
		if n, _ := fmt.Sscanf(strings.TrimSpace(value), "%d kB", &kib); n == 1 {
			out[name] = kib
		}
	}
	return out
}

// counted receives the library's count of plugins.
type counted struct {
	adaptation.Metrics
	h *host
}

func (c counted) UpdatePluginCount(n int)                                                  { c.h.plugins.Store(int64(n)) }
func (counted) RecordPluginInvocation(string, string, error)                               {}
func (counted) RecordPluginLatency(string, string, time.Duration)                          {}
func (counted) RecordPluginAdjustments(string, string, *api.ContainerAdjustment, int, int) {}

// life has the times of one container's calls.
type life struct {
	create, start, end time.Duration
	bytes, others      int
}

// begin creates and starts a container and measures the calls.
func (h *host) begin(b *testing.B, u *unit) life {
	b.Helper()
	ctx, files := context.Background(), h.arm == trimtab
	must := func(err error) {
		if err != nil {
			b.Fatalf("%s: %v", h.arm, err)
		}
	}
	if files {
		must(h.tree.makePod(u))
	}
	must(h.RunPodSandbox(ctx, &adaptation.RunPodSandboxRequest{Pod: u.pod}))
	var l life
	start := time.Now()
	rpl, err := h.CreateContainer(ctx, &adaptation.CreateContainerRequest{Pod: u.pod, Container: u.ctr})
	l.create = time.Since(start)
	must(err)
	u.take(rpl.Adjust)
	l.bytes, l.others = size(rpl.Adjust), len(rpl.Update)
	if files {
		must(h.tree.makeContainer(u))
	}
	start = time.Now()
	must(h.StartContainer(ctx, &adaptation.StartContainerRequest{Pod: u.pod, Container: u.ctr}))
	l.start = time.Since(start)
	u.ctr.State = api.ContainerState_CONTAINER_RUNNING
	return l
}

// end stops and removes a container and its pod, and returns the total time.
func (h *host) end(b *testing.B, u *unit) time.Duration {
	b.Helper()
	ctx := context.Background()
	start := time.Now()
	_, err := h.StopContainer(ctx, &adaptation.StopContainerRequest{Pod: u.pod, Container: u.ctr})
	for _, e := range []error{
		err,
		h.RemoveContainer(ctx, &adaptation.RemoveContainerRequest{Pod: u.pod, Container: u.ctr}),
		h.StopPodSandbox(ctx, &adaptation.StopPodSandboxRequest{Pod: u.pod}),
		h.RemovePodSandbox(ctx, &adaptation.RemovePodSandboxRequest{Pod: u.pod}),
	} {
		if e != nil {
			b.Fatalf("%s: %v", h.arm, e)
		}
	}
	took := time.Since(start)
	if h.arm == trimtab {
		if err := h.tree.remove(u); err != nil {
			b.Fatal(err)
		}
	}
	return took
}
