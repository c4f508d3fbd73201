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

// street is one runtime that several agents attach to.
type street struct {
	t       *testing.T
	dir     string // of the NRI socket
	cri     string // the runtime's socket, in a directory of its own
	cgroups string // stands for the kubelet's cgroup root
	kernel  *kernel.Cgroups
	tree    *kernel.Cgroups // that agents have mounted
	runtime *sim.Runtime
	pods    int
}

func newStreet(t *testing.T) *street {
	t.Helper()
	m, err := describe.Parse("1s x 1n x 8c")
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernel.NewCgroups(cgroup.V2, "0-7", "0")
	if err != nil {
		t.Fatal(err)
	}
	s := &street{t: t, dir: shortDir(t), cri: filepath.Join(shortDir(t), "runtime.sock"), cgroups: t.TempDir(), kernel: kernel, tree: kernel}
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

// shortDir is a directory whose sockets have short enough names.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// resident is an agent of a street, with a state directory, a key and a status
// socket of its own.
type resident struct {
	s      *street
	name   string
	attach string
	config config.Config
	agent  *agent.Agent
	cancel context.CancelFunc
	ended  chan error
}

// moveIn starts an agent. shared is where its own sockets are, if it has some.
func (s *street) moveIn(name, attach, shared string, change func(*config.Config)) *resident {
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
		c.FailurePolicy.Agent = "fail" // which must refuse nothing while the agent stays out
	}
	c.NRI.Socket, c.CRI.Endpoint, c.CRI.ImageEndpoint = filepath.Join(s.dir, "nri.sock"), "unix://"+s.cri, ""
	c.CRI.Socket, c.HookServers.Socket = filepath.Join(shared, "p"), filepath.Join(shared, "h")
	c.HookServers.Register, c.HookServers.Directory = "", ""
	c.Paths.StatusSocket, c.Paths.Key, c.Paths.State = filepath.Join(dir, "s"), filepath.Join(dir, "key"), filepath.Join(dir, "state")
	c.PodSpec = config.PodSpec{}
	if change != nil {
		change(&c)
	}
	r := &resident{s: s, name: name, attach: attach, config: c, ended: make(chan error, 1)}
	r.agent, err = agent.New(agent.Options{
		Log:    slog.New(slog.NewTextHandler(s.t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})).With("agent", name),
		Config: c, ConfigFile: "", Version: name, Machine: m, Tree: &cgroup.Tree{FS: s.tree, Version: cgroup.V2}, Look: 10 * time.Millisecond,
		CgroupDir: s.cgroups, Sweep: 500 * time.Millisecond, Proc: filepath.Join(dir, "no-proc"), Watch: func() (cgroup.Watcher, error) { return Watch(s.tree), nil },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- r.agent.Run(ctx) }()
	s.t.Cleanup(r.leave)
	return r
}

// leave ends the agent.
func (r *resident) leave() {
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	if err := <-r.ended; err != nil {
		r.s.t.Errorf("%s ended: %v", r.name, err)
	}
}

func (s *street) await(what string, look func() error) {
	s.t.Helper()
	late := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := look()
		if err == nil {
			return
		}
		if time.Now().After(late) {
			s.t.Fatalf("%s: %v", what, err)
		}
		<-tick.C
	}
}

// working waits until an agent is attached and says that it is ready.
func (r *resident) working() {
	r.s.t.Helper()
	r.s.await(r.name+" works", func() error {
		if !r.agent.Connected() {
			return fmt.Errorf("%w: %+v", errNotYet, r.agent.Source().Status().Attachments)
		}
		return r.agent.Ready()
	})
}

// out waits until an agent says that it stays out because of another, everywhere
// where it is looked for.
func (r *resident) out(because *resident) {
	r.s.t.Helper()
	who := fmt.Sprintf("process %d", os.Getpid())
	r.s.await(r.name+" stays out", func() error {
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
					return fmt.Errorf("%s says %q and not %q", what, text, want)
				}
			}
		}
		return nil
	})
}

// kubelet is one that reaches the runtime the way an attachment wants it.
func (s *street) kubelet(r *resident) *Kubelet {
	s.t.Helper()
	socket := s.cri
	if r != nil && r.attach == "cri" {
		socket = r.config.CRI.Socket
	}
	k, err := NewKubelet(s.runtime, socket)
	if err == nil && r != nil && r.attach == "hooks" {
		err = k.throughProxy(r.config.HookServers.Socket, newKept())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = k.Close() })
	return k
}

// owner runs a pod that was assigned a CPU.
func (s *street) owner(k *Kubelet, cpu int) scenario.Ref {
	s.t.Helper()
	return s.pod(k, "LSR", map[string]string{"scheduling.koordinator.sh/resource-status": fmt.Sprintf(`{"cpuset":"%d"}`, cpu)})
}

// pod runs a pod. That it cannot be created is what must not happen.
func (s *street) pod(k *Kubelet, class string, annotations map[string]string) scenario.Ref {
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

// owns waits until an agent says that a pod's container owns a CPU, and the kernel
// has it.
func (r *resident) owns(pod scenario.Ref, cpu int) {
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

// has compares the kernel's list of a pod's container.
func (s *street) has(pod scenario.Ref, want string) error {
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

// TestTwoAgents has a second agent come to a runtime, with every pair of
// attachments and state directories, keys and status sockets of their own. It stays
// out, says who is there, and takes over when the first one leaves; no creation is
// refused meanwhile, and nobody's CPUs move.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	attachments := []string{"nri", "cri", "bypass", "auto", "hooks"}
	for _, first := range attachments {
		for _, second := range attachments {
			t.Run(first+" and "+second, func(t *testing.T) {
				t.Parallel()
				s := newStreet(t)
				shared := shortDir(t)
				apart := shared
				if first != second { // as a unit and a DaemonSet have; a rolling update shares them
					apart = shortDir(t)
				}
				one := s.moveIn("one", first, shared, nil)
				one.working()
				before := s.kubelet(one)
				early := s.owner(before, 1)
				one.owns(early, 1)
				two := s.moveIn("two", second, apart, nil)
				two.out(one)
				beside := s.owner(before, 2)
				one.owns(beside, 2)
				two.out(one)
				if first != second {
					s.pod(s.kubelet(two), "LS", nil) // what comes its way passes
				}

				between := s.kubelet(nil)
				if first == second {
					between = before
				}
				handOver(s, one, between)
				two.working()
				if n := two.agent.Source().Status(); n.Standby != "" {
					t.Errorf("two works and says %s", n.Standby)
				}
				two.owns(early, 1)
				two.owns(beside, 2)
				late := s.owner(s.kubelet(two), 3)
				two.owns(late, 3)
			})
		}
	}
}

// handOver ends an agent while pods come.
func handOver(s *street, leaves *resident, k *Kubelet) {
	s.t.Helper()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		leaves.leave()
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

// TestSigns: a second agent is noticed by each sign alone: it has another cgroup tree
// mounted, or attaches elsewhere.
func TestSigns(t *testing.T) {
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
			s := newStreet(t)
			one := s.moveIn("one", sign.first, shortDir(t), nil)
			one.working()
			elsewhere := *s
			if !sign.sameTree {
				elsewhere.cgroups = t.TempDir()
			}
			two := elsewhere.moveIn("two", sign.second, shortDir(t), func(c *config.Config) {
				if sign.sameStatus {
					c.Paths.StatusSocket = one.config.Paths.StatusSocket
				}
			})
			two.out(one)
			if key, _, _ := strings.Cut(name, ","); !strings.Contains(fmt.Sprint(two.agent.Ready()), key) {
				t.Errorf("it does not say where it noticed: %v", two.agent.Ready())
			}
			one.leave()
			two.working()
			two.serves()
		})
	}
}

// serves waits until the agent answers at its status socket.
func (r *resident) serves() {
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
