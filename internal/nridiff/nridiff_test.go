package nridiff

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

func TestMain(m *testing.M) {
	sim.SetNRILog(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// changer is a plugin that changes every container.
type changer struct {
	env    string
	synced chan struct{}
}

func (c changer) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	close(c.synced)
	return nil, nil
}

func (c changer) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	a := &api.ContainerAdjustment{}
	a.AddEnv(c.env, "1")
	a.AddMount(&api.Mount{Destination: "/m" + c.env, Source: "/s", Type: "bind", Options: []string{"ro"}})
	a.AddAnnotation("by."+c.env, "yes")
	a.AddDevice(&api.LinuxDevice{Path: "/dev/" + c.env, Type: "c", Major: 1, Minor: 3})
	if c.env == "LATE" {
		a.SetLinuxCPUShares(7)
	}
	return a, nil, nil
}

func runtime(t *testing.T) (*sim.Runtime, string) {
	t.Helper()
	m, err := describe.Parse("1s x 1n x 2c x 2t, 4GiB/node")
	if err != nil {
		t.Fatal(err)
	}
	k, err := kernel.NewCgroups(cgroup.V2, "0-3", "0")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "n")
	r, err := sim.NewRuntime(sim.Options{Machine: m, Kernel: k, Version: cgroup.V2, Driver: sim.Cgroupfs, Socket: socket, Seed: "diff"})
	if err == nil {
		err = r.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r, socket
}

func register(t *testing.T, p changer, index, socket string) {
	t.Helper()
	s, err := stub.New(p, stub.WithPluginName("changer"), stub.WithPluginIdx(index), stub.WithSocketPath(socket), stub.WithOnClose(func() {}))
	if err == nil {
		err = s.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop(); s.Wait() })
	select {
	case <-p.synced:
	case <-time.After(time.Minute):
		t.Fatal("the runtime has not taken the plugin in")
	}
}

// TestDiff: the result between two observers has exactly the changes of the plugins between them; the
// container is the same as without observers.
func TestDiff(t *testing.T) {
	r, socket := runtime(t)
	register(t, changer{"EARLY", make(chan struct{})}, "20", socket)
	register(t, changer{"LATE", make(chan struct{})}, "60", socket)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	results, ready, ended := make(chan Result, 8), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Socket: socket, Indices: []string{"99", "00", "50", "00"}, OnResult: func(r Result) error { results <- r; return nil }, OnReady: func() { close(ready) }})
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	pod := scenario.Pod{Namespace: "d", Name: "web", QoS: "Burstable"}
	if err := r.RunPodSandbox(ctx, pod, scenario.Resources{}); err != nil {
		t.Fatal(err)
	}
	shares := uint64(5)
	if err := r.CreateContainer(ctx, "d/web", scenario.Container{Name: "app", Env: map[string]string{"A": "1"}, Resources: scenario.Resources{Shares: &shares}}); err != nil {
		t.Fatal(err)
	}
	var both []Result
	for range 2 {
		select {
		case r := <-results:
			both = append(both, r)
		case err := <-ended:
			t.Fatalf("%d results, %v", len(both), err)
		case <-ctx.Done():
			t.Fatalf("%d results in time", len(both))
		}
	}
	device := `{"major":"1","minor":"3","type":"c"}`
	mount := `{"options":["ro"],"source":"/s","type":"bind"}`
	for i, want := range [][]Change{
		{{"annotations.by.EARLY", "", "yes"}, {"env EARLY", "", "1"}, {"linux.devices /dev/EARLY", "", device}, {"mounts /mEARLY", "", mount}},
		{{"annotations.by.LATE", "", "yes"}, {"env LATE", "", "1"}, {"linux.devices /dev/LATE", "", device}, {"linux.resources.cpu.shares", "5", "7"}, {"mounts /mLATE", "", mount}},
	} {
		got := both[i]
		if d := cmp.Diff(want, got.Changes); d != "" || got.Pod != "d/web" || got.Container != "app" || got.From != []string{"00", "50"}[i] || got.To != []string{"50", "99"}[i] {
			t.Errorf("%+v\n%s", got, d)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestDiffEnds: the end of the runtime, and invalid options, are errors.
func TestDiffEnds(t *testing.T) {
	r, socket := runtime(t)
	err := Run(t.Context(), Options{Socket: socket, Indices: []string{"00", "99"}, OnResult: func(Result) error { return nil }, OnReady: func() { r.Stop() }})
	if err == nil || !strings.Contains(err.Error(), "closed the NRI connection") {
		t.Errorf("a runtime that stops: %v", err)
	}
	for _, indices := range [][]string{nil, {"00"}, {"00", "x"}, {"1", "99"}, {"00", "00"}} {
		if err := Run(t.Context(), Options{Socket: socket, Indices: indices}); err == nil {
			t.Errorf("%v was run", indices)
		}
	}
	if err := Run(t.Context(), Options{Socket: filepath.Join(t.TempDir(), "none"), Indices: []string{"00", "99"}}); err == nil {
		t.Error("no runtime, and no error")
	}
}
