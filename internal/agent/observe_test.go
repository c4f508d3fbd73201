package agent_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is an agent with its HTTP address, without a running runtime.
type node struct {
	agent   *agent.Agent
	runtime *sim.Runtime
	url     string
	client  *http.Client
}

func newNode(t *testing.T) *node {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	sim.SetNRILog(quiet)
	m, err := topology.New([]topology.CPU{{ID: 0}, {ID: 1}, {ID: 2}, {ID: 3}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernel.NewCgroups(cgroup.V2, "0-3", "0")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := config.Default()
	c.NRI.Socket = filepath.Join(dir, "nri.sock")
	c.Paths.StatusSocket, c.Paths.Key, c.Paths.State = filepath.Join(dir, "status.sock"), filepath.Join(dir, "key"), dir
	c.HTTP.Address = freeAddress(t)
	r, err := sim.NewRuntime(sim.Options{
		Machine: m, Kernel: kernel, Version: cgroup.V2, Driver: sim.Cgroupfs, Socket: c.NRI.Socket, Log: quiet, Seed: t.Name(),
	})
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Options{Config: c, Version: "v1", Log: quiet, Machine: m, Tree: &cgroup.Tree{FS: kernel, Version: cgroup.V2}})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{agent: a, runtime: r, url: "http://" + c.HTTP.Address, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return n
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (n *node) get(path string) string {
	resp, err := n.client.Get(n.url + path)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, b)
}

// until repeats a request until the answer is as expected.
func (n *node) until(t *testing.T, path string, wanted func(string) bool) string {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for {
		got := n.get(path)
		if wanted(got) {
			return got
		}
		select {
		case <-look.C:
		case <-late.C:
			t.Fatalf("%s still answers %s", path, got)
		}
	}
}

// TestProbes: the agent is alive from its start, and ready only while the runtime is attached. The web page
// reports the same.
func TestProbes(t *testing.T) {
	n := newNode(t)
	n.until(t, "/healthz", func(s string) bool { return s == "200 ok\n" })
	got := n.until(t, "/readyz", func(s string) bool { return strings.HasPrefix(s, "503 ") })
	if !strings.HasPrefix(got, "503 no runtime is attached: nri: ") {
		t.Errorf("not ready says %q", got)
	}
	page := n.get("/metrics")
	for _, want := range []string{`trimtab_attached{mode="nri"} 0`, `trimtab_build_info{commit="",go="go`, "trimtab_config_generation 1", "trimtab_last_sync_timestamp_seconds 0"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if err := n.runtime.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.until(t, "/readyz", func(s string) bool { return s == "200 ok\n" })
	page = n.until(t, "/metrics", func(s string) bool { return strings.Contains(s, `trimtab_attached{mode="nri"} 1`) })
	for _, want := range []string{`trimtab_connection_state{mode="nri",state="synchronised"} 1`, `trimtab_events_total{kind="Synchronize"} 1`, `trimtab_pool_cpus{node="0",pool="shared"} 4`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page, "trimtab_last_sync_timestamp_seconds 0\n") {
		t.Error("no time of the last synchronise")
	}
	if at := n.agent.Source().Status().Attachments; len(at) != 1 || at[0].RequestTimeout == "" || at[0].RegistrationTimeout == "" {
		t.Errorf("the runtime's timeouts are not told: %+v", at)
	}
	n.runtime.Stop()
	n.until(t, "/readyz", func(s string) bool { return strings.HasPrefix(s, "503 no runtime is attached") })
	if got := n.get("/healthz"); got != "200 ok\n" {
		t.Errorf("a runtime that is away makes the agent ill: %s", got)
	}
}

// metered makes an agent on a described node with two CPUs that serves metrics. Two agents in one directory
// detect each other.
func metered(t *testing.T, dir, state, address string, change func(*config.Config), log io.Writer) *agent.Agent {
	t.Helper()
	m, err := topology.New([]topology.CPU{{ID: 0}, {ID: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernel.NewCgroups(cgroup.V2, "0-1", "0")
	if err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.NRI.Socket, c.HTTP.Address = filepath.Join(dir, "nri.sock"), address
	c.Paths.StatusSocket, c.Paths.Key, c.Paths.State = filepath.Join(dir, "status.sock"), filepath.Join(dir, "key"), filepath.Join(dir, state)
	if change != nil {
		change(&c)
	}
	a, err := agent.New(agent.Options{Config: c, Machine: m, Tree: &cgroup.Tree{FS: kernel, Version: cgroup.V2}, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// waiting is a log handler that reports when the agent waits for its address.
type waiting chan struct{}

func (w waiting) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "until the address is free") {
		close(w) // logged once
	}
	return len(line), nil
}

// TestAddressInUse: if another program uses the address, the agent does not start, and the error says what
// to do.
func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = metered(t, t.TempDir(), "state", l.Addr().String(), nil, io.Discard).Run(ctx)
	if want := "http.address: another program listens at " + l.Addr().String() + ": stop it"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("the agent ends with %v, want %s", err, want)
	}
	if ctx.Err() != nil {
		t.Error("it has not ended by itself")
	}
}

// TestProxyAddressInUse: an agent that relays the kubelet's calls does not end because its metrics address
// is in use.
func TestProxyAddressInUse(t *testing.T) {
	address := freeAddress(t)
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	waits := make(waiting)
	a := metered(t, dir, "state", address, func(c *config.Config) {
		c.Attach, c.CRI.Socket, c.CRI.Endpoint = "cri", filepath.Join(dir, "cri.sock"), "unix://"+filepath.Join(dir, "runtime.sock")
	}, waits)
	served(t, a, waits, address, func() { l.Close() })
}

// TestStandbyAddress: an agent in standby waits for the other agent's address, and gets it after that agent
// has ended.
func TestStandbyAddress(t *testing.T) {
	dir, address := t.TempDir(), freeAddress(t)
	ctx, stop := context.WithCancel(t.Context())
	first := make(chan error, 1)
	waits := make(waiting)
	one := metered(t, dir, "one", address, nil, io.Discard)
	go func() { first <- one.Run(ctx) }()
	answers(t, address)
	served(t, metered(t, dir, "two", address, nil, waits), waits, address, func() {
		stop()
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// answers waits until an agent answers at an address.
func answers(t *testing.T, address string) {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		answer, err := client.Get("http://" + address + "/healthz")
		if err == nil {
			answer.Body.Close()
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// served runs an agent whose address is in use, frees the address, and waits until the agent answers there.
func served(t *testing.T, a *agent.Agent, waits waiting, address string, free func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	select {
	case err := <-done:
		t.Fatalf("the agent ended: %v", err)
	case <-waits:
	}
	free()
	answers(t, address)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
