package churn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// patience is how long the tests wait for a condition.
const patience = time.Minute

// pod is a pod that runs or will run.
type pod struct {
	scenario.Pod
	kind    kind
	cpus    int // the number of exclusive CPUs that the pod requests
	ctrs    []scenario.Container
	stopped bool
	history []string // operations on it, with the agent's status after each
}

func (p *pod) ref() scenario.Ref { return scenario.PodRef(p.Namespace, p.Name) }

// did notes an operation on a pod that requests exclusive CPUs.
func (p *pod) did(format string, args ...any) {
	if !p.kind.owns {
		return
	}
	p.history = append(p.history, fmt.Sprintf(format, args...))
}

// blame fails the test because of a pod, and prints the pod's history.
func (n *node) blame(p *pod, format string, args ...any) {
	n.t.Helper()
	n.t.Errorf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(p.history, "\n"))
}

// summary is the agent's status of a container, in one line.
func summary(c api.Container) string {
	text := c.CPUGroup + " " + c.CPUs
	for _, q := range c.Problems {
		text += "; " + q.Reason
	}
	return text
}

// node is the embedded runtime with an agent at its NRI socket.
type node struct {
	t        testing.TB
	rng      *rand.Rand
	machine  *topology.Machine
	runtime  *sim.Runtime
	observer *observer
	config   config.Config
	tree     *cgroup.Tree
	agent    *agent.Agent
	stop     func() error
	syncs    atomic.Int64
	late     *lateFS // a planted fault; nil for none

	pods    []*pod
	waiting map[scenario.Ref]bool // created, not started
	made    int
	refused int // requested CPUs and own none
	owned   int // own CPUs
	resized int // own another number of CPUs after a resize
	kept    int // whose resize was refused
	// next is the container that is about to start.
	next func()
}

// reserved CPUs are in no pool.
const reserved = "0,128"

func newNode(t testing.TB, v cgroup.Version, seed uint64, fault string) *node {
	t.Helper()
	n := &node{t: t, rng: rand.New(rand.NewPCG(seed, 1)), waiting: map[scenario.Ref]bool{}}
	var err error
	if n.machine, err = describe.Parse("4s x 2n x 16c x 2t, 64GiB/node"); err != nil {
		t.Fatal(err)
	}
	kernel, err := kernel.NewCgroups(v, "0-255", "0-7")
	if err != nil {
		t.Fatal(err)
	}
	n.observer = newObserver(n.machine, kernel, v)
	n.tree = &cgroup.Tree{FS: kernel, Version: v}
	if fault != "" {
		n.late = &lateFS{FS: kernel, lost: fault == "lost", resizes: fault == "resizes"}
		n.tree.FS = n.late
	}
	dir := t.TempDir()
	n.config = configOf(dir, v)
	n.runtime, err = sim.NewRuntime(sim.Options{
		Machine: n.machine, Kernel: kernel, Version: v, Driver: sim.Cgroupfs, Socket: n.config.NRI.Socket, Seed: "churn", ManyContainers: true, Observe: n.observe,
	})
	if err == nil {
		err = n.runtime.Start(t.Context())
	}
	if err == nil {
		err = n.startAgent()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
		n.runtime.Stop()
	})
	return n
}

func configOf(dir string, v cgroup.Version) config.Config {
	c := config.Default()
	c.NRI.Socket = filepath.Join(dir, "n")
	c.Cgroup.Version = v.String()
	c.Paths.StatusSocket, c.Paths.Key, c.Paths.State = filepath.Join(dir, "s"), filepath.Join(dir, "key"), filepath.Join(dir, "state")
	c.PodSpec.Kubelet, c.HookServers.Directory = config.KubeletClient{}, ""
	c.Pools.Reserved = reserved
	c.Placement.Policy, c.Placement.LendLSR, c.Placement.WholeCPUs = "pools", true, "guaranteed"
	c.Authorization = append(c.Authorization, config.Rule{Kinds: []string{"numa-exclusive"}, Namespaces: []string{"churn"}, Decision: "allow"})
	return c
}

// observe runs at every event, while the runtime waits.
func (n *node) observe(ev sim.Event) {
	switch {
	case ev.Kind == "Synchronize" && ev.Err == nil:
		n.syncs.Add(1)
	case ev.Kind == "StartContainer" && ev.Err == nil:
		n.next()
		n.late.flush()
	}
}

func (n *node) startAgent() error {
	a, err := agent.New(agent.Options{Config: n.config, Machine: n.machine, Tree: n.tree, Log: slog.New(slog.DiscardHandler), FreeMemory: func() {}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	n.agent = a
	n.stop = func() error {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}
	return n.connected(n.syncs.Load() + 1)
}

// connected waits until the agent has synchronised that often and has written what it decided.
func (n *node) connected(syncs int64) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(patience); n.syncs.Load() < syncs || !n.agent.Connected(); <-look.C {
		if time.Now().After(deadline) {
			return fmt.Errorf("the agent was not connected within %s", patience)
		}
	}
	return nil
}

// restart restarts the agent or the runtime. No cpuset may change meanwhile.
func (n *node) restart(what string) {
	n.observer.freeze(true)
	defer n.observer.freeze(false)
	before := n.syncs.Load()
	var err error
	if what == "agent" {
		if err = n.stop(); err == nil {
			err = n.startAgent()
		}
	} else if err = n.runtime.Restart(n.t.Context()); err == nil {
		err = n.connected(before + 1)
	}
	if err != nil {
		n.t.Fatalf("restart of the %s: %v", what, err)
	}
	for _, p := range n.pods {
		p.did("restart of the %s", what)
	}
}

// lateFS is a planted fault: the agent's writes of CPU lists are lost, or reach the kernel only after the next
// container has started, or only after a resize is done.
type lateFS struct {
	cgroup.FS
	lost, resizes bool

	mu   sync.Mutex
	now  bool // a resize runs
	held []func() error
}

func (l *lateFS) WriteFile(file string, data []byte) error {
	if path.Base(file) != "cpuset.cpus" {
		return l.FS.WriteFile(file, data)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resizes && !l.now {
		return l.FS.WriteFile(file, data)
	}
	l.held = append(l.held, func() error { return l.FS.WriteFile(file, data) })
	return nil
}

// resizing notes that a resize begins or ends.
func (l *lateFS) resizing(now bool) {
	if l == nil || !l.resizes {
		return
	}
	l.mu.Lock()
	l.now = now
	l.mu.Unlock()
	l.flush()
}

// flush performs the held writes.
func (l *lateFS) flush() {
	if l == nil || l.lost {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, write := range l.held {
		_ = write() // the cgroup may be removed
	}
	l.held = nil
}
