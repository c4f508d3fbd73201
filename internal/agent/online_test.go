package agent_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// TestCPUsGoOffline: a running agent notices when CPUs go offline and come back, including those that its
// configuration names.
func TestCPUsGoOffline(t *testing.T) {
	t.Parallel()
	kernel, err := kernel.NewCgroups(cgroup.V2, "0-3", "0")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	online := filepath.Join(dir, "sys/devices/system/cpu/online")
	write := func(list string) {
		t.Helper()
		if err := os.WriteFile(online, []byte(list+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(online), 0o700); err != nil {
		t.Fatal(err)
	}
	write("0-3")
	c := config.Default()
	c.NRI.Socket = filepath.Join(dir, "nri.sock")
	c.Paths.Sys, c.Paths.StatusSocket = filepath.Join(dir, "sys"), ""
	c.Paths.Key, c.Paths.State = filepath.Join(dir, "key"), filepath.Join(dir, "state")
	c.Pools.Reclaimed = "2-3"
	a, err := agent.New(agent.Options{
		Config: c, Log: slog.New(slog.DiscardHandler), Tree: &cgroup.Tree{FS: kernel, Version: cgroup.V2},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for _, step := range []struct{ online, reclaimed string }{{"0-3", "2-3"}, {"0-2", "2"}, {"0-1", "0-1"}, {"0-3", "2-3"}} {
		write(step.online)
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			got := a.Source().Status().CPUs
			if got.Online == step.online && got.Reclaimed == step.reclaimed {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("with %s online it tells %+v", step.online, got)
			}
		}
		if err := a.Reconfigure(c); err != nil {
			t.Errorf("the configuration with %s online: %v", step.online, err)
		}
	}
}

// TestMemoryComes: a running agent notices that a NUMA node now has memory.
func TestMemoryComes(t *testing.T) {
	t.Parallel()
	kernel, err := kernel.NewCgroups(cgroup.V2, "0-3", "0-1")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		file = filepath.Join(dir, "sys/devices/system", file)
		err := os.MkdirAll(filepath.Dir(file), 0o700)
		if err == nil {
			err = os.WriteFile(file, []byte(text+"\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{
		"cpu/online": "0-3", "node/has_memory": "0", "node/node0/cpulist": "0-1", "node/node1/cpulist": "2-3",
		"node/node0/meminfo": "Node 0 MemTotal: 1024 kB", "node/node1/meminfo": "Node 1 MemTotal: 0 kB",
	} {
		write(file, text)
	}
	c := config.Default()
	c.NRI.Socket = filepath.Join(dir, "nri.sock")
	c.Paths.Sys, c.Paths.StatusSocket = filepath.Join(dir, "sys"), ""
	c.Paths.Key, c.Paths.State = filepath.Join(dir, "key"), filepath.Join(dir, "state")
	a, err := agent.New(agent.Options{
		Config: c, Log: slog.New(slog.DiscardHandler), Tree: &cgroup.Tree{FS: kernel, Version: cgroup.V2},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	await := func(want uint64) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			got := a.Source().Status().CPUs.Nodes
			if len(got) == 2 && got[1].Memory == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("it tells %+v, want %d bytes at node 1", got, want)
			}
		}
	}
	await(0)
	write("node/node1/meminfo", "Node 1 MemTotal: 2048 kB")
	write("node/has_memory", "0-1")
	await(2 << 20)
}
