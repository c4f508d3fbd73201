package agent_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/agent/simulated"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

const deviceUseScenario = `
name: deviceuse
about: CDI devices of two kinds, one of which a container has.
node:
  cpus: "1s x 2n x 4c"
  cgroup: v2
  driver: cgroupfs
  cdi: ["v.com/gpu=0000:3b:00.0", "v.com/gpu=0000:86:00.0", "v.com/nic=nic0"]
  cards: {"0000:3b:00.0": 0, "0000:86:00.0": 1}
config:
  placement: {policy: pools}
  authorization: [{kinds: [exclusive-devices], namespaces: [d], decision: allow, mostCPUs: 0}]
  hooks: {cdiDevices: {enabled: true, classes: [v.com/gpu, v.com/disk]}}
steps:
  - name: one gets a device
    run:
      - pod: {namespace: d, name: p, qos: Burstable, annotations: {trimtab.io/cdi-devices: '{"main":{"v.com/gpu":"0000:86:00.0"}}'}}
        containers: [{name: main, resources: {shares: 512}}]
`

// TestDeviceUse: status and PodResources show which CDI devices the node has for containers alone, and who has which.
func TestDeviceUse(t *testing.T) {
	s, err := scenario.Parse([]byte(deviceUseScenario))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "pr", "kubelet.sock")
	client := lister(t, path)
	gpu := func(id string, node int64) *v1.ContainerDevices {
		return &v1.ContainerDevices{ResourceName: "v.com/gpu", DeviceIds: []string{id}, Topology: &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: node}}}}
	}
	first, second := gpu("0000:3b:00.0", 0), gpu("0000:86:00.0", 1)
	err = sim.Run(t.Context(), s, sim.RunOptions{
		Agent:     simulated.New,
		Configure: func(c *config.Config) { c.PodResources.Socket = path },
		AfterLastStep: func(_ context.Context, _ string, _ config.Config, n api.Node) error {
			want := []api.DeviceKind{{Kind: "v.com/disk"}, {Kind: "v.com/gpu", Total: 2, Used: 1, Owners: []api.DeviceOwner{{Device: "0000:86:00.0", Container: "d/p/main"}}}}
			if diff := cmp.Diff(want, n.CDIDevices); diff != "" {
				t.Errorf("status: -want +got:\n%s", diff)
			}
			all, err := client.GetAllocatableResources(t.Context(), &v1.AllocatableResourcesRequest{}, grpc.WaitForReady(true))
			if diff := cmp.Diff([]*v1.ContainerDevices{first, second}, all.GetDevices(), protocmp.Transform()); err != nil || diff != "" {
				t.Errorf("allocatable: %v, -want +got:\n%s", err, diff)
			}
			has, err := client.List(t.Context(), &v1.ListPodResourcesRequest{})
			if err != nil || len(has.GetPodResources()) != 1 || len(has.GetPodResources()[0].GetContainers()) != 1 {
				t.Fatalf("%v, %v", has, err)
			}
			if diff := cmp.Diff([]*v1.ContainerDevices{second}, has.GetPodResources()[0].GetContainers()[0].GetDevices(), protocmp.Transform()); diff != "" {
				t.Errorf("List: -want +got:\n%s", diff)
			}
			return nil
		},
	})
	if err != nil {
		t.Error(err)
	}
}
