package agent_test

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	resources "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/agent/simulated"
	"github.com/trimtab/trimtab/internal/config"
	reports "github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// cpuPlugin is a resource plugin that chooses CPUs, and later other CPUs.
type cpuPlugin struct {
	resources.UnimplementedResourcePluginServer

	mu   sync.Mutex
	cpus string
	uids map[string]bool
}

func (p *cpuPlugin) choose(cpus string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cpus = cpus
}

func (p *cpuPlugin) allocation() *resources.ResourceAllocation {
	return &resources.ResourceAllocation{ResourceAllocation: map[string]*resources.ResourceAllocationInfo{
		"example.com/cpus": {OciPropertyName: "CpusetCpus", AllocationResult: p.cpus, Envs: map[string]string{"CHOSEN": p.cpus}, IsScalarResource: true, AllocatedQuantity: 1},
		"example.com/high": {OciPropertyName: "memory.high", AllocationResult: "1073741824", AllocatedQuantity: 1},
	}}
}

func (p *cpuPlugin) Allocate(_ context.Context, r *resources.ResourceRequest) (*resources.ResourceAllocationResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uids[r.GetPodUid()] = true
	return &resources.ResourceAllocationResponse{AllocationResult: p.allocation()}, nil
}

func (p *cpuPlugin) GetResourcesAllocation(context.Context, *resources.GetResourcesAllocationRequest) (*resources.GetResourcesAllocationResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &resources.GetResourcesAllocationResponse{PodResources: map[string]*resources.ContainerResources{}}
	for uid := range p.uids {
		out.PodResources[uid] = &resources.ContainerResources{ContainerResources: map[string]*resources.ResourceAllocation{"a": p.allocation()}}
	}
	return out, nil
}

// serve serves the plugin in a manager's directory, and registers it when that directory exists.
func (p *cpuPlugin) serve(t *testing.T, dir string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "cpus.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	resources.RegisterResourcePluginServer(s, p)
	done := make(chan error, 2)
	go func() { done <- s.Serve(l) }()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := resources.NewRegistrationClient(conn).Register(t.Context(), &resources.RegisterRequest{
			Version: "v1alpha1", Endpoint: "cpus.sock", ResourceName: "example.com/cpus", Options: &resources.ResourcePluginOptions{NeedReconcile: true},
		}, grpc.WaitForReady(true))
		done <- err
	}()
	t.Cleanup(func() {
		s.Stop()
		_ = conn.Close()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

const cpuPluginScenario = `
name: resource-plugin
about: A plugin chooses CPUs of a container that owns none, changes them while it runs, and never gets CPUs of an owner.
node: {cpus: "1s x 2n x 4c, 8GiB/node", cgroup: v2, driver: cgroupfs}
config:
  pools: {reserved: "0"}
  placement: {policy: pools, reclaim: leftover, wholeCPUs: guaranteed}
  podspec: {waitMilliseconds: 1000}
  resourcePlugins: {timeoutMilliseconds: 5000, reconcileSeconds: 1}
steps:
  - name: it registers; an owner of CPUs
    run:
      - pod: {namespace: default, name: owner, qos: Guaranteed}
        containers: [{name: a, resources: {shares: 2048, quota: 200000}}]
    want: {default/owner/a: &owner {cpus: 1-2, exclusive: true}}
  - name: the CPUs of the plugin, less those of the owner
    run:
      - pod:
          namespace: default
          name: web
          qos: Burstable
          spec: {nodeName: node1, containers: [{name: a, resources: {requests: {cpu: 100m, example.com/cpus: "1"}, limits: {example.com/cpus: "1"}}}]}
        containers: [{name: a, resources: {shares: 102}}]
    want:
      default/owner/a: *owner
      default/web/a:
        cpus: 3-4
        env: {CHOSEN: 2-4}
        files: {memory.high: "1073741824"}
        problems: ["CPUs 2 are owned by default/owner"]
  - name: it chooses others
    want: {default/owner/a: *owner, default/web/a: {cpus: 5-7, env: {CHOSEN: 2-4}, files: {memory.high: "1073741824"}}}
  - name: the agent restarts
    restart: agent
    want: {default/owner/a: *owner, default/web/a: {cpus: 5-7, env: {CHOSEN: 2-4}}}
`

// TestResourcePluginChooses runs pods with an agent whose CPUs a plugin chooses.
func TestResourcePluginChooses(t *testing.T) {
	s, err := scenario.Parse([]byte(cpuPluginScenario))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := &cpuPlugin{cpus: "2-4", uids: map[string]bool{}}
	p.serve(t, dir)
	await := func(s reports.Source) {
		look := time.NewTicker(5 * time.Millisecond)
		defer look.Stop()
		for r := s.Status().ResourcePlugins; r == nil || len(r.Plugins) == 0; r = s.Status().ResourcePlugins {
			select {
			case <-look.C:
			case <-t.Context().Done():
				t.Fatal("the plugin is not registered")
			}
		}
	}
	err = sim.Run(t.Context(), s, sim.RunOptions{
		Agent:     simulated.New,
		KeepState: true,
		Configure: func(c *config.Config) { c.ResourcePlugins.Directory = dir },
		AfterStep: func(step int, _ *sim.Runtime, s reports.Source) {
			if step == 0 {
				await(s)
			}
			if step == 1 {
				p.choose("5-7")
			}
		},
	})
	if err != nil {
		t.Error(err)
	}
}
