package sim

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/lifecycle"
	report "github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// toy is a minimal agent: it gives a pod the CPUs of its annotation "cpus", unless wrong plants a fault.
type toy struct {
	opts  AgentOptions
	wrong string

	mu        sync.Mutex
	connected bool
	ids       map[string]string // container name -> id
	ended     bool              // the pod that owns CPUs
	stub      stub.Stub
}

func (a *toy) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		gone := make(chan struct{})
		s, err := stub.New(a, stub.WithPluginName("toy"), stub.WithPluginIdx("50"), stub.WithSocketPath(a.opts.Config.NRI.Socket),
			stub.WithOnClose(func() { close(gone) }))
		if err != nil {
			return err
		}
		if err := s.Start(ctx); err != nil {
			continue // the runtime is restarting
		}
		a.mu.Lock()
		a.stub = s
		a.mu.Unlock()
		select {
		case <-gone:
		case <-ctx.Done():
		}
		s.Stop()
		s.Wait()
		a.mu.Lock()
		a.connected = false
		a.mu.Unlock()
	}
	return nil
}

func (a *toy) Synchronize(_ context.Context, _ []*api.PodSandbox, cs []*api.Container) ([]*api.ContainerUpdate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.connected = true
	if a.wrong == "moves at restart" && len(cs) > 0 {
		u := &api.ContainerUpdate{}
		u.SetContainerId(cs[0].Id)
		u.SetLinuxCPUSetCPUs("0")
		return []*api.ContainerUpdate{u}, nil
	}
	return nil, nil
}

func (a *toy) CreateContainer(_ context.Context, p *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids[c.Name] = c.Id
	cpus := p.Annotations["cpus"]
	if cpus == "" {
		return nil, nil, nil
	}
	if cpus == "no" {
		return nil, nil, errors.New("toy says no")
	}
	adjust := &api.ContainerAdjustment{}
	adjust.AddEnv("TOY", "1")
	if a.wrong != "late" {
		adjust.SetLinuxCPUSetCPUs(cpus)
	}
	return adjust, nil, nil
}

// PostStartContainer is called after the first instruction, which is too late.
func (a *toy) PostStartContainer(_ context.Context, p *api.PodSandbox, c *api.Container) error {
	if cpus := p.Annotations["cpus"]; a.wrong == "late" && cpus != "" {
		go a.update(c.Id, cpus) // the runtime is still busy with this event
	}
	return nil
}

func (a *toy) StopPodSandbox(_ context.Context, p *api.PodSandbox) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = a.ended || p.Name == "own" && a.wrong != "deaf"
	return nil
}

func (a *toy) update(id, cpus string) {
	a.mu.Lock()
	s := a.stub
	a.mu.Unlock()
	u := &api.ContainerUpdate{}
	u.SetContainerId(id)
	u.SetLinuxCPUSetCPUs(cpus)
	// The test checks the result in the kernel.
	_, _ = s.UpdateContainers([]*api.ContainerUpdate{u})
}

func (a *toy) Reconfigure(c config.Config) error {
	a.mu.Lock()
	id, cpus := a.ids["one"], c.Pools.Shared
	a.mu.Unlock()
	u := &api.ContainerUpdate{}
	u.SetContainerId(id)
	u.SetLinuxCPUSetCPUs(cpus)
	_, err := a.stub.UpdateContainers([]*api.ContainerUpdate{u})
	return err
}

func (a *toy) Connected() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.connected
}

func (a *toy) Source() status.Source { return a }

func (a *toy) Status() report.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := report.Node{CPUs: report.NodeCPUs{Shared: "0-3"}}
	if !a.ended {
		n.CPUs.Grants = []report.Grant{{Pod: "a/own", CPUs: "2-3"}}
		n.Containers = []report.Container{{Pod: "a/own", Name: "two", ID: a.ids["two"], State: "running"}}
	}
	return n
}

func (a *toy) Explain(_, pod, name string) ([]report.Container, bool) {
	c := report.Container{Pod: pod, Name: name, Class: "shared", CPUGroupWhy: "because"}
	if pod == "odd" {
		c.Problems = []lifecycle.Problem{{Key: "k", Value: "v", Reason: "is odd"}}
	}
	return []report.Container{c}, pod != "unknown"
}

func (a *toy) Events(context.Context, uint64) ([]report.Event, <-chan struct{}) { return nil, nil }

const toyScenario = `
name: toy
about: A toy agent.
node: {cpus: 4c}
config: {pools: {shared: 0-1}}
steps:
  - name: a pod
    run:
      - pod: {namespace: a, name: plain, qos: Burstable}
        containers: [{name: one, resources: {shares: 512, cpus: 0-1}}]
      - pod: {namespace: a, name: own, qos: Guaranteed, annotations: {cpus: 2-3}}
        containers: [{name: two, env: {A: b}, resources: {shares: 1024}}]
    want:
      a/own/two: {cpus: "2-3", shares: 1024, exclusive: true, class: shared, problems: [], env: {TOY: "1", A: b}, absentEnv: [B], state: running}
      a/own: {shares: 1024}
  - name: refusal
    run:
      - pod: {namespace: a, name: bad, qos: BestEffort, annotations: {cpus: "no"}}
        containers: [{name: x}]
    wantRejected: toy says no
  - name: configuration
    reconfigure: {pools: {shared: "1"}}
    want: {a/plain/one: {cpus: "1"}}
  - name: agent
    restart: agent
  - name: runtime
    restart: runtime
    want: {a/plain/one: {cpus: "1"}}
  - name: create
    createContainer: {pod: a/own, container: {name: three}}
    want: {a/own/three: {state: created, cpus: 2-3}}
  - name: start
    startContainer: a/own/three
    want: {a/own/three: {state: running, cpus: 2-3}}
  - name: stop
    stop: [a/own/three]
    want: {a/own/three: {state: stopped}}
  - name: remove
    remove: [a/own, a/plain/one]
`

func play(t *testing.T, text, wrong string, patience time.Duration) (string, error) {
	t.Helper()
	s, err := scenario.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out := &strings.Builder{}
	err = Run(t.Context(), s, RunOptions{Out: out, Patience: patience, Agent: func(o AgentOptions) (Agent, error) {
		return &toy{opts: o, wrong: wrong, ids: map[string]string{}}, nil
	}})
	return out.String(), err
}

func TestRun(t *testing.T) {
	shown, err := play(t, toyScenario, "", time.Minute)
	if err != nil {
		t.Fatalf("%v\n%s", err, shown)
	}
	for _, want := range []string{
		"toy  on 1 socket, 1 NUMA node, 4 CPUs, cgroup v2 (cgroupfs)",
		"TOY=1", "because", "a/own alone", "rejected: create a/bad/x", "toy says no",
		"1*", "a/own/three (created)", "✓ all as expected: 9 steps, 10 expectations",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not shown in\n%s", want, shown)
		}
	}
}

// TestRunFindsFaults plants one fault after another. A scenario must find each of them.
func TestRunFindsFaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ from, to, wrong, want string }{
		"CPUs":            {`cpus: "2-3", shares`, `cpus: "1-3", shares`, "", `cpus are "2-3", wanted "1-3"`},
		"weight":          {"shares: 1024, exclusive", "shares: 2048, exclusive", "", "weight is 39, wanted 79 (of shares 2048)"},
		"quota":           {"shares: 1024, exclusive", "quota: 5000, exclusive", "", "quota is -1, wanted 5000"},
		"memory":          {"shares: 1024, exclusive", "memory: 5000, exclusive", "", "memory limit is -1, wanted 5000"},
		"mems":            {"shares: 1024, exclusive", "mems: '1', exclusive", "", `mems are "0", wanted "1"`},
		"env":             {"A: b}, absent", "A: c}, absent", "", `env A is "b", wanted "c"`},
		"absent env":      {"absentEnv: [B]", "absentEnv: [A]", "", `env A is "b", wanted none`},
		"mount":           {"absentEnv: [B]", "mounts: {/x: /y}", "", `mount at /x has the source "", wanted "/y"`},
		"class":           {"class: shared", "class: system", "", "class is shared, wanted system"},
		"no problem":      {"problems: []", "problems: [odd]", "", `wanted one that contains "odd"`},
		"a problem":       {"a/own/two: {", "a/odd/x: {problems: []}\n      a/own/two: {", "", `problems are ["k: \"v\": is odd"], wanted none`},
		"state":           {"state: running}", "state: created}", "", "is running, wanted created"},
		"pod":             {"a/own: {shares: 1024}", "a/own: {shares: 2}", "", "a/own: weight is 39, wanted 1"},
		"no such":         {"a/own: {shares: 1024}", "a/gone: {shares: 2}", "", "a/gone: pod a/gone does not exist"},
		"not rejected":    {`cpus: "no"`, `cpus: "1"`, "", "was not rejected"},
		"other rejection": {"toy says no", "toy says yes", "", "wanted an error with \"toy says yes\""},
		"not exclusive":   {"cpus: 0-1}", "cpus: 0-2}", "", "are not exclusive: a/plain/one may use 0-2"},
		"moved":           {"name: toy", "name: toy2", "moves at restart", "the restart changed CPUs"},
		"too late":        {"name: toy", "name: toy3", "late", `at its first instruction cpus are "0-3"`},
		"an end":          {"name: toy", "name: toy4", "deaf", "a/own: has ended, but the agent reports that it owns CPUs 2-3"},
		"its container's": {"name: toy", "name: toy5", "deaf", "a/own/two: has ended, but the agent reports the state running"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(toyScenario, tt.from, tt.to, 1)
			shown, err := play(t, text, tt.wrong, time.Second)
			var unmet *UnmetError
			if !errors.As(err, &unmet) || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v, want it to contain %q\n%s", err, tt.want, shown)
			}
			if !strings.Contains(shown, "✗") || !strings.Contains(shown, "not as expected") {
				t.Errorf("not shown in\n%s", shown)
			}
		})
	}
}

func TestRunRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ from, to, want string }{
		"config": {"{pools: {shared: 0-1}}", "{pool: {}}", `unknown key "pool"`},
		"broken": {"startContainer: a/own/three", "startContainer: a/own/four", "no container with this name has the state CREATED"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := play(t, strings.Replace(toyScenario, tt.from, tt.to, 1), "", time.Minute)
			var unmet *UnmetError
			if err == nil || errors.As(err, &unmet) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want it to contain %q", err, tt.want)
			}
		})
	}
}

func TestAgentDoesNotConnect(t *testing.T) {
	s, err := scenario.Parse([]byte(toyScenario))
	if err != nil {
		t.Fatal(err)
	}
	for want, factory := range map[string]AgentFactory{
		"no agent":                          nil,
		"make the agent: no":                func(AgentOptions) (Agent, error) { return nil, errors.New("no") },
		"ended before it was connected: ow": func(AgentOptions) (Agent, error) { return ended{errors.New("ow")}, nil },
		"was not connected within":          func(AgentOptions) (Agent, error) { return ended{}, nil },
	} {
		err := Run(t.Context(), s, RunOptions{Agent: factory, Patience: 50 * time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to contain %q", err, want)
		}
	}
}

// ended is an agent that ends and never connects.
type ended struct{ err error }

func (e ended) Run(ctx context.Context) error {
	if e.err == nil {
		<-ctx.Done()
	}
	return e.err
}
func (ended) Reconfigure(config.Config) error { return nil }
func (ended) Connected() bool                 { return false }
func (ended) Source() status.Source           { return nil }
