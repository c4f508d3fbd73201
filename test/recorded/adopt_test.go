package recorded

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// left is the state after an agent was stopped in the middle of a scenario: its files, the writes to the kernel, and
// the runtime's pods and containers with their records.
type left struct {
	Scenario, Cgroup string
	Step             string
	Kernel           []string // mkdir DIRECTORY, rmdir DIRECTORY, write FILE VALUE
	Files            map[string]string
	Pods             []*api.PodSandbox
	Containers       []*api.Container
	Owned, Seats     map[string]string // what the agent reported: CPUs by container
}

var renew = flag.Bool("leave", false, "write testdata/left again, as an agent of the present code leaves it")

// leavings are the steps of scenarios whose state is kept.
var leavings = []struct {
	scenario string
	v1       bool
}{
	{"pools-dedicated", true},       // owners
	{"pools-resize", true},          // a resize after the record was made
	{"tour", true},                  // a container without requests whose cpuset was narrowed
	{"podspec", false},              // stored pod specs
	{"kubelet-podresources", false}, // what the kubelet granted
}

// TestAdopted starts an agent on the state of an earlier one. It must write nothing, and every container must own the
// same CPUs as before. Only -leave writes the state again, with the present code: -update must not, for the state would no
// longer be that of an earlier agent.
func TestAdopted(t *testing.T) {
	t.Parallel()
	for _, l := range leavings {
		for _, v := range []string{"v1", "v2"} {
			if v == "v1" && !l.v1 {
				continue
			}
			t.Run(v+" "+l.scenario, func(t *testing.T) {
				t.Parallel()
				file := filepath.Join("testdata", "left", v+"-"+l.scenario+".json")
				if *renew {
					synctest.Test(t, func(t *testing.T) { leave(t, l.scenario, v, file) })
				}
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				found := &left{}
				if err := json.Unmarshal(text, found); err != nil {
					t.Fatal(err)
				}
				synctest.Test(t, func(t *testing.T) { adopt(t, found) })
			})
		}
	}
}

func load(t *testing.T, name, v string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Load("../scenarios/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.Node.Cgroup = v
	return s
}

// leave plays a scenario and keeps the state with the most containers.
func leave(t *testing.T, name, v, file string) {
	t.Helper()
	s := load(t, name, v)
	var changes []string
	var best *left
	var dir string
	err := sim.Run(t.Context(), s, sim.RunOptions{
		InMemory: true, Patience: time.Minute, Agent: newAgent, KeepState: true,
		BeforeStart: func(k *kernel.Cgroups, d string) error {
			dir = d
			k.OnWrite(func(path, value string) { changes = append(changes, "write "+path+" "+value) })
			k.OnChange(func(path string, c cgroup.Change) {
				how := map[cgroup.Change]string{cgroup.Created: "mkdir", cgroup.Removed: "rmdir"}[c]
				group, once := strings.CutPrefix(path, "cpuset/") // in version 1 it is called for every hierarchy
				if how != "" && (once || v == "v2") {
					changes = append(changes, how+" "+group)
				}
			})
			return os.WriteFile(filepath.Join(d, "record.key"), []byte(key), 0o600)
		},
		AfterStep: func(i int, r *sim.Runtime, agent status.Source) {
			time.Sleep(drained)
			synctest.Wait()
			pods, ctrs := r.ListForSynchronize()
			if slices.ContainsFunc(s.Steps[:i+1], func(s scenario.Step) bool { return len(s.Reconfigure) > 0 }) ||
				s.Steps[i].Kubelet != "" || best != nil && len(ctrs) < len(best.Containers) {
				return
			}
			best = &left{Scenario: name, Cgroup: v, Step: s.Steps[i].Name, Kernel: slices.Clone(changes), Files: filesOf(t, dir), Pods: pods, Containers: ctrs}
			best.Owned, best.Seats = reported(agent)
		},
	})
	if unmet := (*sim.UnmetError)(nil); err != nil && !errors.As(err, &unmet) {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(best, "", " ")
	if err == nil {
		err = writeFile(file, string(text)+"\n")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// filesOf reads the files of a state directory and the key.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{"record.key", "state/checkpoint.json", "state/originals.jsonl", "state/granted.json", "state/podspecs.json"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			files[name] = string(text)
		}
	}
	return files
}

// reported returns the owned CPUs and the CPUs of every container, as the agent reports them.
func reported(agent status.Source) (owned, cpus map[string]string) {
	owned, cpus = map[string]string{}, map[string]string{}
	n := agent.Status()
	for _, g := range n.CPUs.Grants {
		owned[g.Pod+"/"+g.Container] = g.CPUs
	}
	for _, c := range n.Containers {
		if c.CPUGroup != "none" {
			cpus[c.Pod+"/"+c.Name] = c.CPUGroup + " " + c.CPUs
		}
	}
	return owned, cpus
}

// adopt starts an agent on a kept state.
func adopt(t *testing.T, found *left) {
	t.Helper()
	s := load(t, found.Scenario, found.Cgroup)
	o, err := sim.AgentOptionsFor(s)
	if err != nil {
		t.Fatal(err)
	}
	kernel, fake := o.Tree.FS.(*kernel.Cgroups)
	if !fake {
		t.Fatal("the tree is not in memory")
	}
	again(t, kernel, found.Kernel)
	dir := t.TempDir()
	for name, text := range found.Files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if o.Config, err = sim.ConfigOf(s.Config, dir, o.Tree.Version); err != nil {
		t.Fatal(err)
	}
	o.Config.Paths.StatusSocket = ""
	o.Config.PodSpec.Kubelet.URL = "http://kubelet" // which does not run
	if s.HasGrants() {
		o.Config.PodSpec.Kubelet.PodResourcesSocket = filepath.Join(dir, "podresources.sock")
	}
	if err := os.WriteFile(o.Config.NRI.Socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kernel.OnWrite(func(path, value string) { t.Errorf("%s = %q is written", path, value) })
	r := &lister{found: found, nri: o.Config.NRI.Socket, registered: make(chan struct{})}
	o.Log, o.Dial = slog.New(slog.DiscardHandler), r.dial
	a, err := newAgent(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	time.Sleep(time.Minute)
	synctest.Wait()
	if !a.Connected() {
		t.Error("it is not connected")
	}
	owned, cpus := reported(a.Source())
	if d := cmp.Diff([]map[string]string{found.Owned, found.Seats}, []map[string]string{owned, cpus}); d != "" {
		t.Errorf("left at %q: %s", found.Step, d)
	}
	for _, u := range r.updates {
		t.Errorf("the runtime is asked for %v", u)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	r.close()
}

// again applies recorded changes to a kernel.
func again(t *testing.T, k *kernel.Cgroups, all []string) {
	t.Helper()
	for _, op := range all {
		var err error
		switch how, path, _ := strings.Cut(op, " "); how {
		case "mkdir":
			err = k.MkdirRunc(path)
		case "rmdir":
			err = k.Rmdir(path)
		case "write":
			file, value, _ := strings.Cut(path, " ")
			err = k.WriteFile(file, []byte(value))
		}
		if err != nil {
			t.Fatalf("%s: %v", op, err)
		}
	}
}

// lister is a runtime that lists the kept pods and containers.
type lister struct {
	found      *left
	nri        string
	registered chan struct{}
	updates    []*api.ContainerUpdate
	conn       multiplex.Mux
	client     *ttrpc.Client
	server     *ttrpc.Server
}

func (r *lister) dial(_ context.Context, address string) (net.Conn, error) {
	if address != r.nri {
		return nil, fmt.Errorf("%s is away", address)
	}
	ours, theirs := net.Pipe()
	r.conn = multiplex.Multiplex(ours)
	calls, err := r.conn.Open(multiplex.PluginServiceConn)
	if err != nil {
		return nil, err
	}
	requests, err := r.conn.Listen(multiplex.RuntimeServiceConn)
	if err != nil {
		return nil, err
	}
	if r.server, err = ttrpc.NewServer(); err != nil {
		return nil, err
	}
	api.RegisterRuntimeService(r.server, r)
	go func() { _ = r.server.Serve(context.Background(), requests) }() // ends with close
	r.client = ttrpc.NewClient(calls)
	go r.start(api.NewPluginClient(r.client))
	return theirs, nil
}

func (r *lister) start(plugin api.PluginService) {
	<-r.registered
	ctx := context.Background()
	if _, err := plugin.Configure(ctx, &api.ConfigureRequest{RuntimeName: "trimtab-sim", RuntimeVersion: "0.12.5", NRIVersion: "v0.12.5"}); err != nil {
		return // the agent reports that it is not connected
	}
	if answer, err := plugin.Synchronize(ctx, &api.SynchronizeRequest{Pods: r.found.Pods, Containers: r.found.Containers}); err == nil {
		r.updates = append(r.updates, answer.GetUpdate()...)
	}
}

func (r *lister) close() {
	if r.conn != nil {
		_ = errors.Join(r.conn.Close(), r.client.Close(), r.server.Close()) // ignores errors of the remaining connections
	}
}

// RegisterPlugin is the plugin's first call.
func (r *lister) RegisterPlugin(context.Context, *api.RegisterPluginRequest) (*api.Empty, error) {
	close(r.registered)
	return &api.Empty{}, nil
}

// UpdateContainers receives an update that the plugin sends by itself.
func (r *lister) UpdateContainers(_ context.Context, req *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	r.updates = append(r.updates, req.GetUpdate()...)
	return &api.UpdateContainersResponse{}, nil
}
