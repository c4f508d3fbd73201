package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
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

// memoryFile is a child's environment variable with the kubeconfig of its agent; memoryOff for none.
const (
	memoryFile = "TRIMTAB_MEMORY_KUBECONFIG"
	memoryOff  = "off"
	memoryPods = 100
)

// BenchmarkMemory measures how much the use of the API server adds to an agent's resident memory. Complete agents run
// in processes of their own, with the embedded runtime and 100 pods, with all cluster features on and off.
func BenchmarkMemory(b *testing.B) {
	p := controlplane.Start(b, "--disable-admission-plugins=ServiceAccount")
	makeNode(b, p, "n1")
	install(b, p, nrts, "NodeResourceTopology", nrtVersion("v1alpha2", true))
	pods := p.Dynamic(controlplane.Admin).Resource(podsOf).Namespace("default")
	for i := range memoryPods {
		if _, err := pods.Create(b.Context(), podOn("n1", fmt.Sprint("pod-", i)), metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	file := p.Kubeconfig("agent", controlplane.Admin+"-token")
	resident := map[string][]float64{}
	for b.Loop() {
		for _, with := range []string{memoryOff, file} {
			cmd := exec.CommandContext(b.Context(), os.Args[0])
			cmd.Env, cmd.Stderr = append(os.Environ(), memoryFile+"="+with), os.Stderr
			out, err := cmd.Output()
			if err != nil {
				b.Fatal(err)
			}
			for i, text := range strings.Fields(string(out)) {
				kib, err := strconv.ParseFloat(text, 64)
				if err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				name := map[bool]string{true: "off", false: "on"}[with == memoryOff] + []string{"-MiB", "-anonymous-MiB", "-least-MiB"}[i]
				resident[name] = append(resident[name], kib/1024)
			}
		}
	}
	for name, all := range resident {
		slices.Sort(all)
		b.Logf("%s: %.1f", name, all)
		b.ReportMetric(all[len(all)/2], name)
	}
	b.ReportMetric(0, "ns/op")
}

// memoryChild runs an agent until it has reported everything, and prints its resident memory, the anonymous part, and
// the resident memory after free memory was returned.
func memoryChild(file string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "") // short: sockets are in it
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m, err := describe.Parse("2s x 16c, 64GiB/node")
	if err != nil {
		return err
	}
	tree, err := kernel.NewCgroups(cgroup.V2, "0-31", "0-1")
	if err != nil {
		return err
	}
	c := memoryConfig(dir, file)
	runtime, err := sim.NewRuntime(sim.Options{Machine: m, Kernel: tree, Version: cgroup.V2, Driver: sim.Cgroupfs, Socket: c.NRI.Socket, Seed: "memory"})
	if err != nil {
		return err
	}
	if err := runtime.Start(ctx); err != nil {
		return err
	}
	defer runtime.Stop()
	a, err := agent.New(agent.Options{Config: c, Version: "test", Machine: m, Tree: &cgroup.Tree{FS: tree, Version: cgroup.V2}, MaxStartDelay: time.Second})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(running) }()
	err = errors.Join(memoryFill(ctx, a, runtime, file != memoryOff), memoryPrint())
	stop()
	if end := <-ended; !errors.Is(end, context.Canceled) {
		err = errors.Join(err, end)
	}
	return err
}

// memoryConfig returns the default configuration with all cluster features on or off.
func memoryConfig(dir, file string) config.Config {
	c := config.Default()
	c.NRI.Socket = filepath.Join(dir, "n")
	c.Paths.StatusSocket, c.Paths.Key, c.Paths.State = filepath.Join(dir, "s"), filepath.Join(dir, "key"), filepath.Join(dir, "state")
	c.PodSpec.Kubelet, c.HookServers.Directory = config.KubeletClient{}, ""
	if file == memoryOff {
		return c
	}
	c.Cluster.Enabled, c.Cluster.NodeName, c.Cluster.Kubeconfig = true, "n1", file
	c.Cluster.PodAnnotation, c.Cluster.Topology.Koordinator = true, true
	c.Authorization = []config.Rule{{Kinds: []string{"*"}, Namespaces: []string{"*"}, NamespaceSelector: "team", Decision: "allow"}}
	return c
}

// memoryFill runs pods, and waits until everything about them is reported.
func memoryFill(ctx context.Context, a *agent.Agent, runtime *sim.Runtime, cluster bool) error {
	shares := uint64(1024)
	for i := range memoryPods {
		name := fmt.Sprint("pod-", i)
		one := scenario.Container{Name: "app", Resources: scenario.Resources{Shares: &shares}}
		pod := scenario.Pod{Namespace: "default", Name: name, QoS: "Burstable"}
		ref := scenario.Ref("default/" + name)
		if err := errors.Join(
			runtime.RunPodSandbox(ctx, pod, sim.SumResources(pod.QoS, []scenario.Container{one})),
			runtime.CreateContainer(ctx, ref, one), runtime.StartContainer(ctx, ref.In("app")),
		); err != nil {
			return err
		}
	}
	for cluster {
		missing := memoryMissing(a)
		if missing == "" {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", ctx.Err(), missing)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// memoryMissing returns what the agent has not reported yet.
func memoryMissing(a *agent.Agent) string {
	s := a.Source().Status()
	for _, p := range s.PodSpecs {
		if p.Name == "API server" && p.Pods != memoryPods {
			return fmt.Sprintf("pods: %+v", p)
		}
	}
	if s.Cluster == nil {
		return "no cluster"
	}
	for _, p := range s.Cluster.Parts {
		if p.Error != "" || strings.Contains(p.State, "not written") || strings.Contains(p.State, "starts") || strings.Contains(p.State, "waits") {
			if p.Name != "PodAnnotation" { // the embedded runtime's pods are not those of the API server
				return p.Text()
			}
		}
	}
	return ""
}

// memoryPrint prints sizes in KiB.
func memoryPrint() error {
	before, err := memoryNow()
	if err != nil {
		return err
	}
	debug.FreeOSMemory()
	after, err := memoryNow()
	if err != nil {
		return err
	}
	fmt.Println(before["VmRSS"], before["RssAnon"], after["VmRSS"])
	return nil
}

func memoryNow() (map[string]string, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			out[name] = strings.TrimSuffix(strings.TrimSpace(value), " kB")
		}
	}
	return out, nil
}
