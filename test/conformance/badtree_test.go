package conformance

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/cri"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// guarded is the agent's view of the kernel: it counts the agent's writes and can refuse them. The runtime writes to
// the kernel directly.
type guarded struct {
	*kernel.Cgroups

	mu     sync.Mutex
	tried  []string
	answer func(file string) error // nil refuses nothing
}

func (g *guarded) WriteFile(file string, data []byte) error {
	g.mu.Lock()
	g.tried = append(g.tried, file)
	answer := g.answer
	g.mu.Unlock()
	if answer != nil {
		if err := answer(file); err != nil {
			return &fs.PathError{Op: "write", Path: file, Err: err}
		}
	}
	return g.Cgroups.WriteFile(file, data)
}

// writes counts the agent's attempts to write, for each file below a directory.
func (g *guarded) writes(dir string) map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[string]int{}
	for _, file := range g.tried {
		if strings.Contains("/"+file, "/"+dir+"/") {
			all[file]++
		}
	}
	return all
}

// badNode is a node with a faulty cgroup tree, a runtime and a complete agent.
type badNode struct {
	t         *testing.T
	kernel    *guarded
	runtime   *sim.Runtime
	criServer *cri.Server
	agent     *agent.Agent
	dir       string
}

// withBothVersions runs a test once for each cgroup version.
func withBothVersions(t *testing.T, test func(t *testing.T, n *badNode)) {
	t.Helper()
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			test(t, newBadNode(t, v))
		})
	}
}

func newBadNode(t *testing.T, v cgroup.Version) *badNode {
	t.Helper()
	m, err := describe.Parse("1s x 1n x 4c")
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernel.NewCgroups(v, "0-3", "0")
	if err != nil {
		t.Fatal(err)
	}
	n := &badNode{t: t, kernel: &guarded{Cgroups: kernel}, dir: t.TempDir()}
	n.runtime, err = sim.NewRuntime(sim.Options{
		Machine: m, Kernel: kernel, Version: v, Driver: sim.Cgroupfs, Socket: filepath.Join(n.dir, "n"), Seed: t.Name(),
	})
	if err == nil {
		err = n.runtime.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.runtime.Stop)
	if n.criServer, err = cri.Serve(n.runtime, cri.Options{Socket: filepath.Join(n.dir, "c")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.criServer.Close)
	c := config.Default()
	c.Attach, c.CRI.Endpoint, c.Pools.Reclaimed = "bypass", "unix://"+filepath.Join(n.dir, "c"), "2-3"
	c.Paths.StatusSocket, c.Paths.Key, c.Paths.State = filepath.Join(n.dir, "s"), filepath.Join(n.dir, "key"), filepath.Join(n.dir, "state")
	c.PodSpec = config.PodSpec{}
	n.agent, err = agent.New(agent.Options{
		Log:    slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
		Config: c, Version: "test", Machine: m, Tree: &cgroup.Tree{FS: n.kernel, Version: v}, PollInterval: 10 * time.Millisecond,
		Proc: filepath.Join(n.dir, "no-proc"), Watch: func() (cgroup.Watcher, error) { return Watch(kernel), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// attach starts the agent and waits until it has listed pods and containers.
func (n *badNode) attach() {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.agent.Run(ctx) }()
	n.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			n.t.Error(err)
		}
	})
	n.await("attached", func() error {
		if !n.agent.Connected() {
			return errNotYet
		}
		return nil
	})
}

var errNotYet = fmt.Errorf("not yet")

// await calls check until it returns no error.
func (n *badNode) await(what string, check func() error) {
	n.t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("%s: %v", what, err)
		}
		<-tick.C
	}
}

// run starts a pod with one container. Pods of class BE get batch resources.
func (n *badNode) run(name, class string) {
	n.t.Helper()
	pod := scenario.Pod{Namespace: "d", Name: name, QoS: "Burstable", Labels: map[string]string{"koordinator.sh/qosClass": class}}
	c := scenario.Container{Name: "main", Resources: scenario.Resources{Shares: new(uint64(512))}}
	if class == "BE" {
		c.Resources.Shares = new(uint64(2))
		pod.QoS = "BestEffort"
		pod.Annotations = map[string]string{
			"node.koordinator.sh/extended-resource-spec": `{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":500},"limits":{"kubernetes.io/batch-cpu":1000}}}}`,
		}
	}
	ref := scenario.PodRef(pod.Namespace, pod.Name)
	err := n.runtime.RunPodSandbox(n.t.Context(), pod, sim.SumResources(pod.QoS, []scenario.Container{c}))
	if err == nil {
		err = n.runtime.CreateContainer(n.t.Context(), ref, c)
	}
	if err == nil {
		err = n.runtime.StartContainer(n.t.Context(), ref.In("main"))
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// churn starts and removes pods and waits until the agent has handled each. An action that the agent repeats for every
// event shows up in the counts.
func (n *badNode) churn(times int) {
	n.t.Helper()
	for i := range times {
		name := fmt.Sprint("passer", i)
		n.run(name, "LS")
		n.await(name+" comes", func() error {
			if _, known := n.agent.Source().Explain("d", name, "main"); !known {
				return errNotYet
			}
			return nil
		})
		if err := n.runtime.RemovePodSandbox(n.t.Context(), scenario.PodRef("d", name)); err != nil {
			n.t.Fatal(err)
		}
		n.await(name+" goes", func() error {
			if _, known := n.agent.Source().Explain("d", name, "main"); known {
				return errNotYet
			}
			return nil
		})
	}
}

// value returns one value of a pod's container from the agent's status.
func (n *badNode) value(pod, field string) (api.Value, error) {
	found, known := n.agent.Source().Explain("d", pod, "main")
	if !known {
		return api.Value{}, errNotYet
	}
	for _, v := range found[0].Values {
		if v.Field == field {
			return v, nil
		}
	}
	return api.Value{}, fmt.Errorf("no %s among %+v", field, found[0].Values)
}

func (n *badNode) inForce(pod string) {
	n.t.Helper()
	n.await(pod+" in force", func() error {
		v, err := n.value(pod, "cpu.shares")
		if err == nil && !v.Applied {
			err = fmt.Errorf("%+v", v)
		}
		return err
	})
}

// container is the cgroup of a pod's container.
func (n *badNode) container(pod string) string {
	n.t.Helper()
	for _, c := range n.runtime.Containers() {
		for _, p := range n.runtime.Sandboxes() {
			if c.Ref == scenario.PodRef("d", pod).In("main") && p.ID == c.Pod {
				return p.Dir + "/" + c.ID
			}
		}
	}
	n.t.Fatalf("%s has no container", pod)
	return ""
}

// mostTries bounds the attempts to write a file that refuses writes: some when the container is created, then those of
// the drift watch.
const mostTries = 24

func (n *badNode) bounded(dir string) {
	n.t.Helper()
	for file, times := range n.kernel.writes(dir) {
		if times > mostTries {
			n.t.Errorf("%s was tried %d times", file, times)
		}
	}
}

// TestReadOnlyTree: on a cgroup tree that is mounted read-only, the agent reports each value as refused and stops
// retrying.
func TestReadOnlyTree(t *testing.T) {
	t.Parallel()
	withBothVersions(t, func(t *testing.T, n *badNode) {
		t.Helper()
		n.kernel.answer = func(string) error { return syscall.EROFS }
		n.run("early", "BE")
		n.attach()
		n.run("batch", "BE")
		for _, pod := range []string{"early", "batch"} {
			n.await(pod+" is refused", func() error {
				v, err := n.value(pod, "cpu.shares")
				if err == nil && (v.Applied || !strings.Contains(v.Note, "read-only")) {
					err = fmt.Errorf("%+v", v)
				}
				return err
			})
		}
		n.churn(5)
		for _, pod := range []string{"early", "batch"} {
			if len(n.kernel.writes(n.container(pod))) == 0 {
				t.Errorf("nothing of %s was tried", pod)
			}
			n.bounded(n.container(pod))
		}
	})
}

// TestVanishingCgroup removes a container's cgroup during the agent's writes. Other containers are not affected, and
// the agent stops retrying.
func TestVanishingCgroup(t *testing.T) {
	t.Parallel()
	withBothVersions(t, func(t *testing.T, n *badNode) {
		t.Helper()
		n.run("early", "BE")
		n.run("batch", "BE")
		early, gone := n.container("early"), 0
		n.kernel.answer = func(file string) error {
			if !strings.Contains(file, early+"/") {
				return nil
			}
			gone++
			_ = n.kernel.Rmdir(early) // the second call finds it removed
			return syscall.ENODEV
		}
		n.attach()
		n.inForce("batch")
		n.run("late", "BE")
		n.inForce("late")
		n.churn(5)
		n.bounded(early)
		if gone == 0 {
			t.Error("nothing was written to the cgroup that goes")
		}
		n.await("early is known to be gone", func() error { // the agent looks again from time to time
			if v, err := n.value("early", "cpu.shares"); err == nil && v.Applied {
				return fmt.Errorf("in force in a cgroup that is gone: %+v", v)
			}
			return nil
		})
	})
}

// TestForeignCgroups makes cgroups that are named like pods and containers and belong to none, before the agent starts
// and later. The agent writes nothing to them, does not report them, and asks the runtime only a bounded number of
// times.
func TestForeignCgroups(t *testing.T) {
	t.Parallel()
	withBothVersions(t, func(t *testing.T, n *badNode) {
		t.Helper()
		id := strings.Repeat("5c", 32)
		var strangers []string
		stranger := func(dir string) {
			strangers = append(strangers, dir)
			if err := n.kernel.MkdirRunc(dir); err != nil {
				t.Fatal(err)
			}
		}
		n.run("early", "BE")
		stranger("kubepods/besteffort/pod0badc0de-0000-4000-8000-000000000001/" + id)
		stranger("kubepods/pod-/" + id)
		stranger("kubepods/burstable/burstable/podx/" + id)
		stranger("kubepods/burstable/" + id)
		stranger("kubepodsx/podx/" + id)
		n.attach()
		n.inForce("early")
		stranger("kubepods/besteffort/pod0badc0de-0000-4000-8000-000000000002/" + id)
		stranger(filepath.Dir(n.container("early")) + "/" + strings.Repeat("6d", 32))
		n.run("late", "BE")
		n.inForce("late")
		before := n.criServer.ListCalls()
		n.churn(5)
		for _, dir := range strangers {
			if files := n.kernel.writes(dir); len(files) > 0 {
				t.Errorf("written: %v", files)
			}
			if strings.Contains(dir, "0badc0de") {
				if files := n.kernel.writes(filepath.Dir(dir)); len(files) > 0 {
					t.Errorf("written: %v", files)
				}
			}
		}
		if known := n.agent.Source().Status().Containers; len(known) != 2 {
			t.Errorf("%d containers are reported: %+v", len(known), known)
		}
		if asked := n.criServer.ListCalls() - before; asked > 200 {
			t.Errorf("the runtime was asked for its lists %d times while five pods came and went", asked)
		}
	})
}
