package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology/describe"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// TestAgentPublishes: a whole agent at the embedded runtime publishes what is free of its node, with an owner and
// without.
func TestAgentPublishes(t *testing.T) {
	p := controlplane.Start(t)
	makeNode(t, p, "n1")
	install(t, p, nrts, "NodeResourceTopology", nrtVersion("v1alpha2", true))
	m, err := describe.Parse("2s x 4c, 64GiB/node")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := kernel.NewCgroups(cgroup.V2, "0-7", "0-1")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := config.Default()
	c.NRI.Socket = filepath.Join(dir, "n")
	c.Paths.StatusSocket, c.Paths.Key, c.Paths.State = filepath.Join(dir, "s"), filepath.Join(dir, "key"), filepath.Join(dir, "state")
	c.PodSpec.Kubelet, c.HookServers.Directory = config.KubeletClient{}, ""
	c.Placement.Policy, c.Pools.Reserved = "pools", "0"
	c.Cluster.Enabled, c.Cluster.NodeName, c.Cluster.Kubeconfig = true, "n1", p.Kubeconfig("agent", controlplane.Admin+"-token")
	runtime, err := sim.NewRuntime(sim.Options{Machine: m, Kernel: tree, Version: cgroup.V2, Driver: sim.Cgroupfs, Socket: c.NRI.Socket, Seed: "publish"})
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runtime.Stop)
	a, err := agent.New(agent.Options{
		Config: c, Version: "test", Spread: time.Millisecond, Machine: m, Tree: &cgroup.Tree{FS: tree, Version: cgroup.V2}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	shows(t, p, "n1", "3")

	quota, period, shares := int64(200000), uint64(100000), uint64(2048)
	owner := scenario.Container{Name: "main", Resources: scenario.Resources{Quota: &quota, Period: &period, Shares: &shares}}
	pod := scenario.Pod{Namespace: "db", Name: "own", QoS: "Guaranteed", Annotations: map[string]string{"katalyst.kubewharf.io/qos_level": "dedicated_cores"}}
	ref := scenario.Ref("db/own")
	run := func() {
		t.Helper()
		if err := runtime.RunPodSandbox(t.Context(), pod, sim.SumResources(pod.QoS, []scenario.Container{owner})); err != nil {
			t.Fatal(err)
		}
		if err := runtime.CreateContainer(t.Context(), ref, owner); err != nil {
			t.Fatal(err)
		}
		if err := runtime.StartContainer(t.Context(), ref.In("main")); err != nil {
			t.Fatal(err)
		}
		p.Wait("the owner's CPUs are taken", func(context.Context) error {
			o, err := p.Dynamic(controlplane.Admin).Resource(nrts).Get(t.Context(), "n1", metav1.GetOptions{})
			if err != nil {
				return err
			}
			free := map[any]bool{}
			for _, z := range o.Object["zones"].([]any) {
				for _, r := range z.(map[string]any)["resources"].([]any) {
					if r := r.(map[string]any); r["name"] == "cpu" {
						free[r["available"]] = true
					}
				}
			}
			if !free["2"] && !free["1"] {
				return errors.New("not yet")
			}
			return nil
		})
	}
	run()
	if err := runtime.RemovePodSandbox(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	shows(t, p, "n1", "3")
	run()
	if _, err := a.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Wait("nobody owns CPUs after a release", func(context.Context) error {
		o, err := p.Dynamic(controlplane.Admin).Resource(nrts).Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text, err := o.MarshalJSON(); err != nil || bytes.Contains(text, []byte("exclusive cpuset")) {
			return errors.New("somebody does")
		}
		return nil
	})
	if row := a.Source().Status().Cluster; row == nil || len(row.Parts) == 0 || row.Error != "" {
		t.Errorf("the status says %+v", row)
	}
}
