package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

// memoryFile is a file in memory that signals when it has a line of an event.
type memoryFile struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wants string
	seen  chan struct{}
}

func (w *memoryFile) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(string(b), `"event":"`+w.wants+`"`) {
		close(w.seen)
	}
	return w.text.Write(b)
}

// TestRecord: the recorder writes one line for each message of a runtime, without what may be secret.
func TestRecord(t *testing.T) {
	sim.SetNRILog(slog.New(slog.DiscardHandler))
	for _, kind := range []sim.Kind{sim.CRIO, sim.ISulad} {
		t.Run(kind.Name, func(t *testing.T) { testRecord(t, kind) })
	}
}

func testRecord(t *testing.T, kind sim.Kind) {
	t.Helper()
	machine, err := topology.New([]topology.CPU{{ID: 0}, {ID: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernel.NewCgroups(cgroup.V2, "0-1", "0")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "nri.sock")
	r, err := sim.NewRuntime(sim.Options{Machine: machine, Kernel: kernel, Version: cgroup.V2, Driver: sim.Cgroupfs, Socket: socket, Kind: kind, Seed: "s"})
	if err == nil {
		err = r.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	out := &memoryFile{wants: "Synchronize", seen: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- record(ctx, options{socket: socket, name: "recorder", index: "99", out: out}) }()
	select {
	case <-out.seen:
	case err := <-ended:
		t.Fatalf("the recorder ended: %v", err)
	}
	pod := scenario.PodRef("default", "p")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	must(r.RunPodSandbox(ctx, scenario.Pod{Namespace: "default", Name: "p", QoS: "Burstable"}, scenario.Resources{}))
	must(r.CreateContainer(ctx, pod, scenario.Container{Name: "a", Args: []string{"secret"}, Env: map[string]string{"TOKEN": "secret"}}))
	must(r.StartContainer(ctx, pod.In("a")))
	must(r.UpdateContainer(ctx, pod.In("a"), scenario.Resources{Shares: new(uint64(7))}))
	must(r.RemoveContainer(ctx, pod.In("a")))
	must(r.RemovePodSandbox(ctx, pod))
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var events []string
	out.mu.Lock()
	defer out.mu.Unlock()
	if strings.Contains(out.text.String(), "secret") || !strings.Contains(out.text.String(), "TOKEN=hidden") {
		t.Errorf("the recording has values that may be secret:\n%s", &out.text)
	}
	for in := bufio.NewScanner(&out.text); in.Scan(); {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		events = append(events, l.Event)
	}
	for _, want := range []string{
		"Configure", "Synchronize", "RunPodSandbox", "CreateContainer", "PostCreateContainer", "StartContainer", "PostStartContainer",
		"UpdateContainer", "PostUpdateContainer", "StopContainer", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox",
	} {
		if !slices.Contains(events, want) {
			t.Errorf("%s is not recorded: %q", want, events)
		}
	}
}
