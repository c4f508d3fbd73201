package crowd

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/cri"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// node is an embedded runtime with its NRI and CRI sockets open.
type node struct {
	dir       string
	machine   *topology.Machine
	kernel    *kernel.Cgroups
	runtime   *sim.Runtime
	criServer *cri.Server
}

func (n *node) nri() string { return filepath.Join(n.dir, "n") }
func (n *node) cri() string { return filepath.Join(n.dir, "c") }

// shape is the node's machine.
const shape = "2s x 1n x 16c x 2t"

// newNode starts a runtime with pods of one container each.
func newNode(b *testing.B, pods int) *node {
	b.Helper()
	n := &node{dir: b.TempDir()}
	var err error
	if n.machine, err = describe.Parse(shape); err != nil {
		b.Fatal(err)
	}
	if n.kernel, err = kernel.NewCgroups(cgroup.V2, "0-63", "0-1"); err != nil {
		b.Fatal(err)
	}
	n.runtime, err = sim.NewRuntime(sim.Options{
		Machine: n.machine, Kernel: n.kernel, Version: cgroup.V2, Driver: sim.Systemd, Socket: n.nri(), Seed: "crowd", ManyContainers: true,
	})
	if err == nil {
		err = n.runtime.Start(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(n.runtime.Stop)
	for i := range pods {
		n.run(b, i)
	}
	n.criServer, err = cri.Serve(n.runtime, cri.Options{Socket: n.cri()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(n.criServer.Close)
	return n
}

// run runs a pod: every second one is a batch pod, the others are shared.
func (n *node) run(b *testing.B, i int) {
	b.Helper()
	pod := scenario.Pod{
		Namespace: "crowd", Name: fmt.Sprintf("pod-%d", i), QoS: "Burstable", Labels: map[string]string{"koordinator.sh/qosClass": "LS", "app": "web"},
	}
	if i%2 == 1 {
		pod.QoS, pod.Labels["koordinator.sh/qosClass"] = "BestEffort", "BE"
		pod.Annotations = map[string]string{
			"node.koordinator.sh/extended-resource-spec": `{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":500,"kubernetes.io/batch-memory":"128Mi"},"limits":{"kubernetes.io/batch-cpu":1000,"kubernetes.io/batch-memory":"128Mi"}}}}`,
		}
	}
	c := scenario.Container{Name: "main", Env: map[string]string{"A": "1", "PORT": "8080"}, Resources: scenario.Resources{Shares: new(uint64(2))}}
	if i%2 == 0 {
		c.Resources = scenario.Resources{Shares: new(uint64(512)), Quota: new(int64(50_000)), Period: new(uint64(100_000)), Memory: new(int64(256 << 20))}
	}
	ref := scenario.PodRef(pod.Namespace, pod.Name)
	err := n.runtime.RunPodSandbox(b.Context(), pod, sim.SumResources(pod.QoS, []scenario.Container{c}))
	if err == nil {
		err = n.runtime.CreateContainer(b.Context(), ref, c)
	}
	if err == nil {
		err = n.runtime.StartContainer(b.Context(), ref.In(c.Name))
	}
	if err != nil {
		b.Fatal(err)
	}
}
