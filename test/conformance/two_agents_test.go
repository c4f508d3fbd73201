package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/cri"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// sharedRuntime is one runtime to which several agents attach.
type sharedRuntime struct {
	t       *testing.T
	dir     string // of the NRI socket
	cri     string // the runtime's socket, in a directory of its own
	cgroups string // the kubelet's cgroup root
	kernel  *kernel.Cgroups
	tree    *kernel.Cgroups // the tree that agents mount
	runtime *sim.Runtime
	pods    int
}

func newSharedRuntime(t *testing.T) *sharedRuntime {
	t.Helper()
	m, err := describe.Parse("1s x 1n x 8c")
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernel.NewCgroups(cgroup.V2, "0-7", "0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sharedRuntime{t: t, dir: shortDir(t), cri: filepath.Join(shortDir(t), "runtime.sock"), cgroups: t.TempDir(), kernel: kernel, tree: kernel}
	s.runtime, err = sim.NewRuntime(sim.Options{
		Machine: m, Kernel: kernel, Version: cgroup.V2, Driver: sim.Cgroupfs, Socket: filepath.Join(s.dir, "nri.sock"), Seed: t.Name(),
	})
	if err == nil {
		err = s.runtime.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.runtime.Stop)
	criServer, err := cri.Serve(s.runtime, cri.Options{Socket: s.cri})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(criServer.Close)
	return s
}

// shortDir makes a directory whose path is short enough for socket names.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// attachedAgent is an agent of a sharedRuntime, with its own state directory, key and status socket.
type attachedAgent struct {
	s      *sharedRuntime
	name   string
	attach string
	config config.Config
	agent  *agent.Agent
	cancel context.CancelFunc
	ended  chan error
}

// startAgent starts an agent. shared is the directory of the sockets that the agent opens.
func (s *sharedRuntime) startAgent(name, attach, shared string, change func(*config.Config)) *attachedAgent {
	s.t.Helper()
	m, err := describe.Parse("1s x 1n x 8c")
	if err != nil {
		s.t.Fatal(err)
	}
	at := *s
	s = &at // as it is now
	dir := shortDir(s.t)
	c := config.Default()
	c.Attach = attach
	if attach == "cri" || attach == "hooks" {
		c.FailurePolicy.Agent = "fail" // which must not refuse requests while the agent is on standby
	}
	c.NRI.Socket, c.CRI.Endpoint, c.CRI.ImageEndpoint = filepath.Join(s.dir, "nri.sock"), "unix://"+s.cri, ""
	c.CRI.Socket, c.HookServers.Socket = filepath.Join(shared, "p"), filepath.Join(shared, "h")
	c.HookServers.Register, c.HookServers.Directory = "", ""
	c.Paths.StatusSocket, c.Paths.Key, c.Paths.State = filepath.Join(dir, "s"), filepath.Join(dir, "key"), filepath.Join(dir, "state")
	c.PodSpec = config.PodSpec{}
	if change != nil {
		change(&c)
	}
	r := &attachedAgent{s: s, name: name, attach: attach, config: c, ended: make(chan error, 1)}
	r.agent, err = agent.New(agent.Options{
		Log:    slog.New(slog.NewTextHandler(s.t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})).With("agent", name),
		Config: c, ConfigFile: "", Version: name, Machine: m, Tree: &cgroup.Tree{FS: s.tree, Version: cgroup.V2}, PollInterval: 10 * time.Millisecond,
		CgroupDir: s.cgroups, SweepInterval: 500 * time.Millisecond, Proc: filepath.Join(dir, "no-proc"), Watch: func() (cgroup.Watcher, error) { return Watch(s.tree), nil },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- r.agent.Run(ctx) }()
	s.t.Cleanup(r.stop)
	return r
}

// stop ends the agent.
func (r *attachedAgent) stop() {
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	if err := <-r.ended; err != nil {
		r.s.t.Errorf("%s ended: %v", r.name, err)
	}
}

func (s *sharedRuntime) await(what string, check func() error) {
	s.t.Helper()
	late := time.Now().Add(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(late) {
			s.t.Fatalf("%s: %v", what, err)
		}
		<-tick.C
	}
}

// working waits until an agent is attached and reports that it is ready.
func (r *attachedAgent) working() {
	r.s.t.Helper()
	r.s.await(r.name+" works", func() error {
		if !r.agent.Connected() {
			return fmt.Errorf("%w: %+v", errNotYet, r.agent.Source().Status().Attachments)
		}
		return r.agent.Ready()
	})
}

// standby waits until status and readiness report that the agent waits for another one to end.
func (r *attachedAgent) standby(because *attachedAgent) {
	r.s.t.Helper()
	who := fmt.Sprintf("process %d", os.Getpid())
	r.s.await(r.name+" is on standby", func() error {
		n := r.agent.Source().Status()
		if r.agent.Connected() {
			r.s.t.Fatalf("%s is attached beside %s: %+v", r.name, because.name, n.Attachments)
		}
		if n.Standby == "" {
			return errNotYet
		}
		ready := r.agent.Ready()
		for what, text := range map[string]string{"status": n.Standby, "readyz": fmt.Sprint(ready)} {
			for _, want := range []string{"another agent works on this node", who, "attach: " + because.attach, "version " + because.name} {
				if !strings.Contains(text, want) {
					return fmt.Errorf("%s is %q, want %q in it", what, text, want)
				}
			}
		}
		return nil
	})
}

// kubelet returns a kubelet that reaches the runtime through the agent's attachment.
func (s *sharedRuntime) kubelet(r *attachedAgent) *Kubelet {
	s.t.Helper()
	socket := s.cri
	if r != nil && r.attach == "cri" {
		socket = r.config.CRI.Socket
	}
	k, err := NewKubelet(s.runtime, socket)
	if err == nil && r != nil && r.attach == "hooks" {
		err = k.sendThroughProxy(r.config.HookServers.Socket, newStoredRequests())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = k.Close() })
	return k
}

// owner runs a pod to which a scheduler assigned a CPU.
func (s *sharedRuntime) owner(k *Kubelet, cpu int) scenario.Ref {
	s.t.Helper()
	return s.pod(k, "LSR", map[string]string{"scheduling.koordinator.sh/resource-status": fmt.Sprintf(`{"cpuset":"%d"}`, cpu)})
}

// pod runs a pod and fails the test if that is refused.
func (s *sharedRuntime) pod(k *Kubelet, class string, annotations map[string]string) scenario.Ref {
	s.t.Helper()
	s.pods++
	run := scenario.Run{
		Pod: scenario.Pod{
			Namespace: "d", Name: fmt.Sprint("p", s.pods), QoS: "Guaranteed",
			Labels: map[string]string{"koordinator.sh/qosClass": class}, Annotations: annotations,
		},
		Containers: []scenario.Container{{Name: "a", Resources: scenario.Resources{Shares: new(uint64(1024)), Quota: new(int64(100000))}}},
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	if err := k.Run(ctx, &run); err != nil {
		s.t.Fatalf("a pod cannot be run: %v", err)
	}
	return scenario.PodRef(run.Pod.Namespace, run.Pod.Name)
}

// owns waits until an agent reports that a pod's container owns a CPU, and the kernel's cpuset has that CPU.
func (r *attachedAgent) owns(pod scenario.Ref, cpu int) {
	r.s.t.Helper()
	r.s.await(fmt.Sprintf("%s owns %d with %s", pod, cpu, r.name), func() error {
		for _, g := range r.agent.Source().Status().CPUs.Grants {
			if g.Pod == string(pod) && g.CPUs == fmt.Sprint(cpu) {
				return r.s.has(pod, fmt.Sprint(cpu))
			}
		}
		return fmt.Errorf("%w: %+v", errNotYet, r.agent.Source().Status().CPUs)
	})
}

// has compares the cpuset of a pod's container in the kernel.
func (s *sharedRuntime) has(pod scenario.Ref, want string) error {
	for _, c := range s.runtime.Containers() {
		if c.Ref != pod.In("a") {
			continue
		}
		for _, p := range s.runtime.Sandboxes() {
			if p.ID != c.Pod {
				continue
			}
			got, err := s.kernel.ReadFile(p.Dir + "/" + c.ID + "/cpuset.cpus")
			if list := strings.TrimSpace(string(got)); err != nil || list != want {
				return errors.Join(fmt.Errorf("%s has CPUs %q, want %q", pod, list, want), err)
			}
			return nil
		}
	}
	return fmt.Errorf("%s: no such container", pod)
}

// TestTwoAgents starts a second agent on a node, with every pair of attachments. Each has its own state directory, key
// and status socket. The second agent stays on standby, names the first, and takes over when the first one ends.
// Meanwhile no creation is refused and no container's CPUs change.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	attachments := []string{"nri", "cri", "bypass", "auto", "hooks"}
	for _, first := range attachments {
		for _, second := range attachments {
			t.Run(first+" and "+second, func(t *testing.T) {
				t.Parallel()
				s := newSharedRuntime(t)
				shared := shortDir(t)
				apart := shared
				if first != second { // as with a unit and a DaemonSet; during a rolling update both use the same ones
					apart = shortDir(t)
				}
				one := s.startAgent("one", first, shared, nil)
				one.working()
				before := s.kubelet(one)
				early := s.owner(before, 1)
				one.owns(early, 1)
				two := s.startAgent("two", second, apart, nil)
				two.standby(one)
				beside := s.owner(before, 2)
				one.owns(beside, 2)
				two.standby(one)
				if first != second {
					s.pod(s.kubelet(two), "LS", nil) // the second agent passes requests through unchanged
				}

				between := s.kubelet(nil)
				if first == second {
					between = before
				}
				handOver(s, one, between)
				two.working()
				if n := two.agent.Source().Status(); n.Standby != "" {
					t.Errorf("the second agent works and reports %s", n.Standby)
				}
				two.owns(early, 1)
				two.owns(beside, 2)
				late := s.owner(s.kubelet(two), 3)
				two.owns(late, 3)
			})
		}
	}
}

// handOver ends an agent while pods are created.
func handOver(s *sharedRuntime, first *attachedAgent, k *Kubelet) {
	s.t.Helper()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		first.stop()
	}()
	for left := false; !left; {
		select {
		case <-gone:
			left = true
		default:
		}
		s.pod(k, "LS", nil)
	}
	for range 5 {
		s.pod(k, "LS", nil)
	}
}

// TestSecondAgentDetected: one shared socket or cgroup tree suffices to detect another agent.
func TestSecondAgentDetected(t *testing.T) {
	t.Parallel()
	for name, sign := range map[string]struct {
		first, second string
		sameTree      bool
		sameStatus    bool
	}{
		"nri.socket":         {first: "nri", second: "nri"},
		"nri.socket, auto":   {first: "auto", second: "nri"},
		"cri.endpoint":       {first: "bypass", second: "cri"},
		"cri.endpoint, auto": {first: "hooks", second: "auto"},
		"cgroup.root":        {first: "nri", second: "bypass", sameTree: true},
		"paths.statusSocket": {first: "nri", second: "bypass", sameStatus: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSharedRuntime(t)
			one := s.startAgent("one", sign.first, shortDir(t), nil)
			one.working()
			otherRoot := *s
			if !sign.sameTree {
				otherRoot.cgroups = t.TempDir()
			}
			two := otherRoot.startAgent("two", sign.second, shortDir(t), func(c *config.Config) {
				if sign.sameStatus {
					c.Paths.StatusSocket = one.config.Paths.StatusSocket
				}
			})
			two.standby(one)
			if key, _, _ := strings.Cut(name, ","); !strings.Contains(fmt.Sprint(two.agent.Ready()), key) {
				t.Errorf("it does not report how it detected the other agent: %v", two.agent.Ready())
			}
			one.stop()
			two.working()
			two.serves()
		})
	}
}

// serves waits until the agent's status socket answers.
func (r *attachedAgent) serves() {
	r.s.t.Helper()
	r.s.await(r.name+" answers", func() error {
		client, err := status.Dial(r.s.t.Context(), r.config.Paths.StatusSocket)
		if err != nil {
			return err
		}
		defer client.Close()
		n, err := client.Status(r.s.t.Context())
		if err == nil && n.Version != r.name {
			err = fmt.Errorf("%s answers", n.Version)
		}
		return err
	})
}
