package sim

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// text is a writer with a wait for a text.
type text struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	more chan struct{}
}

func (b *text) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.buf.Write(p)
	select {
	case b.more <- struct{}{}:
	default:
	}
	return n, err
}

func (b *text) await(t *testing.T, want string, times int) string {
	t.Helper()
	late := time.After(time.Minute)
	for {
		b.mu.Lock()
		s := b.buf.String()
		b.mu.Unlock()
		if strings.Count(s, want) >= times {
			return s
		}
		select {
		case <-b.more:
		case <-late:
			t.Fatalf("no %q (%d times) in:\n%s", want, times, s)
		}
	}
}

func TestServe(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	out := &text{more: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, ServeOptions{Out: out, Socket: socket}) }()
	out.await(t, "plugins can connect to", 1)
	p := &plugin{create: func(_ *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		a := &api.ContainerAdjustment{}
		a.AddEnv("TRIED", c.Name)
		a.SetLinuxCPUSetCPUs("0-3")
		return a, nil, nil
	}}
	connect(t, socket, p)
	shown := out.await(t, "waiting for the next plugin", 1)
	for _, want := range []string{
		"Synchronize", "RunPodSandbox", "default/web/app", "adjust env TRIED = app",
		"adjust linux.resources.cpu.cpus = 0-3", "update default/web/app cpu.quota = 50000",
		"RemovePodSandbox", "env added", "TRIED=postgres", "socket 1",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not shown", want)
		}
	}
	// A second plugin sees everything from the beginning.
	second := &plugin{}
	connect(t, socket, second)
	out.await(t, "waiting for the next plugin", 2)
	if got := strings.Join(second.seen(), ","); !strings.Contains(got, "RunPodSandbox web,CreateContainer app,StartContainer app") {
		t.Errorf("the second plugin saw %s", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestExtras: devices, mounts, rlimits and the like that a plugin set are shown; the mounts that every container has
// are not.
func TestExtras(t *testing.T) {
	got := strings.Join(extraLines(effective.State{
		Devices: []string{"/dev/b", "/dev/a"}, CDI: []string{"vendor.com/net=nic0"}, OOM: -5, BlockIO: "slow", RDTClass: "gold",
		Mounts:  map[string]string{"/proc": "proc", "/data": "/srv/data"},
		Process: map[string]string{"rlimit RLIMIT_NOFILE": "1024:4096"},
	}), "\n")
	const want = "devices /dev/a, /dev/b\nCDI devices vendor.com/net=nic0\nmounts /srv/data at /data\nprocess rlimit RLIMIT_NOFILE = 1024:4096\n" +
		"block I/O class slow\nRDT class gold\nOOM score adjustment -5"
	if got != want {
		t.Errorf("%s", got)
	}
	if none := extraLines(effective.State{Mounts: map[string]string{"/sys": "sysfs"}}); none != nil {
		t.Errorf("an ordinary container has %q", none)
	}
}

// TestUnknownCDI: the runtime refuses a container with a CDI device that the node does not have, and names it.
func TestUnknownCDI(t *testing.T) {
	r := &Runtime{opts: Options{KnowsCDI: knownCDIDevices(&scenario.Scenario{Node: scenario.Node{CDI: []string{"vendor.com/net=nic0"}}})}}
	if err := r.checkCDIDevices([]string{"vendor.com/net=nic0"}); err != nil {
		t.Error(err)
	}
	if err := r.checkCDIDevices([]string{"vendor.com/net=nic0", "vendor.com/net=nic1"}); err == nil || !strings.Contains(err.Error(), "unresolvable CDI devices vendor.com/net=nic1 ") {
		t.Error(err)
	}
}
