package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology/describe"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

var nodeMetrics = schema.GroupVersionResource{Group: "slo.koordinator.sh", Version: "v1alpha1", Resource: "nodemetrics"}

// measured waits until the agent reports the node's usage, which is this machine's.
func measured(t *testing.T, p *controlplane.Plane, node string) {
	t.Helper()
	p.Wait("usage is reported", func(ctx context.Context) error {
		o, err := p.Dynamic(controlplane.Admin).Resource(nodeMetrics).Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, of := range []string{"nodeUsage", "systemUsage"} {
			all, _, _ := unstructured.NestedStringMap(o.Object, "status", "nodeMetric", of, "resources")
			cpu, err := strconv.Atoi(strings.TrimSuffix(all["cpu"], "m"))
			memory, memErr := strconv.ParseInt(all["memory"], 10, 64)
			if err != nil || memErr != nil || cpu <= 0 || memory < 1<<20 {
				return fmt.Errorf("%s is %v", of, all)
			}
		}
		if at, _, _ := unstructured.NestedString(o.Object, "status", "updateTime"); at == "" {
			return errors.New("without a time")
		}
		return nil
	})
}

// TestAgentPublishes: a complete agent with the embedded runtime publishes the free resources of its node, with an
// owner and without.
func TestAgentPublishes(t *testing.T) {
	p := controlplane.Start(t)
	makeNode(t, p, "n1")
	install(t, p, nrts, "NodeResourceTopology", nrtVersion("v1alpha2", true))
	install(t, p, cnrs, "CustomNodeResource", cnrVersion("v1alpha1"))
	install(t, p, nodeMetrics, "NodeMetric", map[string]any{
		"name": "v1alpha1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}}, "schema": map[string]any{"openAPIV3Schema": anything},
	})
	m, err := describe.Parse("2s x 4c, 64GiB/node")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := kernel.NewCgroups(cgroup.V2, "0-7", "0-1")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "") // a short path, since it has sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := config.Default()
	c.NRI.Socket = filepath.Join(dir, "n")
	c.Paths.StatusSocket, c.Paths.Key, c.Paths.State = filepath.Join(dir, "s"), filepath.Join(dir, "key"), filepath.Join(dir, "state")
	c.PodSpec.Kubelet, c.HookServers.Directory = config.KubeletClient{}, ""
	c.Placement.Policy, c.Pools.Reserved = "pools", "0"
	c.Cluster.Topology.Katalyst, c.Cluster.Koordinator.NodeMetric = true, true
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
		Config: c, Version: "test", MaxStartDelay: time.Millisecond, Machine: m, Tree: &cgroup.Tree{FS: tree, Version: cgroup.V2}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
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
	measured(t, p, "n1")

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
	p.Wait("Katalyst's object has their owner", func(ctx context.Context) error {
		o, err := p.Dynamic(controlplane.Admin).Resource(cnrs).Get(ctx, "n1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := fmt.Sprint(o.Object["status"]); !strings.Contains(text, "consumer:db/own/") {
			return errors.New(text)
		}
		return nil
	})
	if err := runtime.RemovePodSandbox(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	shows(t, p, "n1", "3")
	run()
	if _, err := a.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Wait("no CPU is owned after a release", func(context.Context) error {
		o, err := p.Dynamic(controlplane.Admin).Resource(nrts).Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text, err := o.MarshalJSON(); err != nil || bytes.Contains(text, []byte("exclusive cpuset")) {
			return errors.New("a CPU is owned")
		}
		return nil
	})
	if row := a.Source().Status().Cluster; row == nil || len(row.Parts) == 0 || row.Error != "" {
		t.Errorf("the status is %+v", row)
	}
}
