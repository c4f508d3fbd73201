package page

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// node is an embedded runtime on a described machine, and an agent with a page.
type node struct {
	t       testing.TB
	dir     string
	address string
	machine *topology.Machine
	kernel  *kernel.Cgroups
	runtime *sim.Runtime
	stop    func()
	ticks   []uint64 // that each CPU has worked
	round   int
}

func newNode(t testing.TB, shape string) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir()}
	var err error
	if n.machine, err = describe.Parse(shape); err != nil {
		t.Fatal(err)
	}
	nodes := fmt.Sprintf("0-%d", len(n.machine.Nodes)-1)
	if n.kernel, err = kernel.NewCgroups(cgroup.V2, n.machine.Format(n.machine.Online()), nodes); err != nil {
		t.Fatal(err)
	}
	n.runtime, err = sim.NewRuntime(sim.Options{
		Machine: n.machine, Kernel: n.kernel, Version: cgroup.V2, Driver: sim.Systemd, Socket: filepath.Join(n.dir, "n"), Seed: "page", ManyContainers: true,
	})
	if err == nil {
		err = n.runtime.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.runtime.Stop)
	n.ticks = make([]uint64, len(n.machine.CPUs))
	n.work(func(int) float64 { return 0 })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.address = l.Addr().String()
	_ = l.Close()
	return n
}

// url returns the page's URL.
func (n *node) url() string { return "http://" + n.address + "/page/" }

// start runs an agent until stop, or until the end of the test.
func (n *node) start() {
	n.t.Helper()
	c := config.Default()
	c.NRI.Socket = filepath.Join(n.dir, "n")
	c.HTTP = config.HTTP{Address: n.address, Page: true}
	c.Placement.Policy, c.Pools.Reserved = "pools", "0"
	c.Paths.StatusSocket, c.Paths.Key, c.Paths.State = filepath.Join(n.dir, "s"), filepath.Join(n.dir, "key"), filepath.Join(n.dir, "state")
	c.PodSpec, c.HookServers.Directory = config.PodSpec{}, ""
	c.Cluster.NodeName = "worker-7"
	a, err := agent.New(agent.Options{
		Config: c, Version: "v0.1.0", Machine: n.machine, Tree: &cgroup.Tree{FS: n.kernel, Version: cgroup.V2}, Proc: filepath.Join(n.dir, "proc"),
	})
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	n.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			n.t.Error(err)
		}
		n.stop = func() {}
	}
	n.t.Cleanup(func() { n.stop() })
	n.wait("the agent is ready", func() bool {
		r, err := http.Get("http://" + n.address + "/readyz")
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

func (n *node) wait(what string, done func() bool) {
	n.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-late.C:
			n.t.Fatal("waited in vain: " + what)
		}
	}
}

// work makes the CPUs busy for a while, each by a share.
func (n *node) work(share func(cpu int) float64) {
	n.t.Helper()
	n.round++
	var stat strings.Builder
	for i, c := range n.machine.CPUs {
		n.ticks[i] += uint64(1000 * share(c.ID))
		fmt.Fprintf(&stat, "cpu%d %d 0 0 %d 0 0 0 0 0 0\n", c.ID, n.ticks[i], uint64(n.round)*1000-n.ticks[i])
	}
	dir := filepath.Join(n.dir, "proc")
	for file, text := range map[string]string{
		"stat":            stat.String(),
		"pressure/cpu":    "some avg10=3.20 avg60=0 avg300=0 total=1\n",
		"pressure/memory": "some avg10=0.00 avg60=0 avg300=0 total=1\nfull avg10=0.00 avg60=0 avg300=0 total=1\n",
	} {
		path := filepath.Join(dir, file)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path+".new", []byte(text), 0o600)
		}
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
}

// busy makes the CPUs work until the test ends.
func (n *node) busy(share func(cpu int) float64) {
	n.t.Helper()
	ended, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for {
			n.work(share)
			select {
			case <-tick.C:
			case <-ended:
				return
			}
		}
	}()
	n.t.Cleanup(func() { close(ended); <-over })
}

// pod runs a pod with a container named main. cpus are the requested milli-CPUs.
func (n *node) pod(p scenario.Pod, cpus int64) {
	n.t.Helper()
	c := scenario.Container{Name: "main", Resources: scenario.Resources{Shares: new(uint64(2))}}
	if cpus > 0 {
		c.Resources = scenario.Resources{Shares: new(uint64(cpus * 1024 / 1000)), Quota: new(cpus * 100), Period: new(uint64(100_000)), Memory: new(int64(1 << 30))}
	}
	ref := scenario.PodRef(p.Namespace, p.Name)
	err := n.runtime.RunPodSandbox(n.t.Context(), p, sim.SumResources(p.QoS, []scenario.Container{c}))
	if err == nil {
		err = n.runtime.CreateContainer(n.t.Context(), ref, c)
	}
	if err == nil {
		err = n.runtime.StartContainer(n.t.Context(), ref.In(c.Name))
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// owner runs a pod that owns whole CPUs.
func (n *node) owner(namespace, name string, cpus int64) {
	n.t.Helper()
	n.pod(scenario.Pod{Namespace: namespace, Name: name, QoS: "Guaranteed", Labels: map[string]string{"koordinator.sh/qosClass": "LSR"}}, cpus*1000)
}

// shared runs a pod of the shared pool, and batch one of the reclaimed pool.
func (n *node) shared(namespace, name string, thousandths int64) {
	n.t.Helper()
	n.pod(scenario.Pod{Namespace: namespace, Name: name, QoS: "Burstable", Labels: map[string]string{"koordinator.sh/qosClass": "LS"}}, thousandths)
}

func (n *node) batch(namespace, name string) {
	n.t.Helper()
	n.pod(scenario.Pod{
		Namespace: namespace, Name: name, QoS: "BestEffort", Labels: map[string]string{"koordinator.sh/qosClass": "BE"},
		Annotations: map[string]string{"node.koordinator.sh/extended-resource-spec": `{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":500,"kubernetes.io/batch-memory":"128Mi"},"limits":{"kubernetes.io/batch-cpu":1000,"kubernetes.io/batch-memory":"128Mi"}}}}`},
	}, 0)
}
