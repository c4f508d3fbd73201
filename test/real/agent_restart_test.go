package real_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// TestCreatedContainersSurviveRestarts restarts agent and runtime while containers wait between creation and start, and
// deletes the agent's state each time. No running container moves, waiting containers start with the values of their
// creation, and the owner's end frees its CPU, also if the runtime does not report it.
func TestCreatedContainersSurviveRestarts(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	a := startTrimtab(t, c, "")
	crowd := c.RunPod(plain("crowd", ""))
	servicePod := c.RunPod(plain("service", "LS"))
	batchPod := c.RunPod(real.PodSpec{Namespace: "shop", Name: "batch", Labels: labels("BE"), Annotations: map[string]string{
		extended: `{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"500"}},"b":{"requests":{"kubernetes.io/batch-cpu":"250"}}}}`,
	}})
	before := c.CreateContainer(crowd, real.ContainerSpec{Name: "waits-since-before"})
	ownerPod := c.RunPod(owning("db", "1"))
	small := &cri.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100_000}
	all := named{
		"owner":   c.RunContainer(ownerPod, real.ContainerSpec{Name: "db", Resources: oneCPU}),
		"silent":  c.RunContainer(crowd, real.ContainerSpec{Name: "silent"}),
		"both":    c.RunContainer(crowd, real.ContainerSpec{Name: "both", Resources: pinned("0-1")}),
		"service": c.RunContainer(servicePod, real.ContainerSpec{Name: "service"}),
		"batch":   c.RunContainer(batchPod, real.ContainerSpec{Name: "a", Resources: small}),
	}
	sampler := c.Sample(timed(real.NoSharing(func(dir string) bool { return baseOf(dir) == string(all["owner"]) })))
	was := fmt.Sprint(snapshot(c, all))
	for i, restart := range []struct {
		name string
		do   func()
	}{
		{"the agent", func() { a.kill(); a.deleteState(); a.run() }},
		{"containerd", func() { c.Restart() }},
		{"containerd, killed", func() { c.Kill9AndRestart() }},
		{"the agent, then containerd", func() { a.kill(); a.deleteState(); a.run(); a.attached(); c.Kill9AndRestart() }},
		{"both, the agent back first", func() { c.Kill(); a.kill(); a.deleteState(); a.run(); c.StartAgain() }},
		{"both, containerd back first", func() { a.kill(); c.Kill9AndRestart(); a.deleteState(); a.run() }},
	} {
		waiting := named{
			"sidecar": c.CreateContainer(ownerPod, real.ContainerSpec{Name: fmt.Sprint("side-", i), Resources: oneCPU}),
			"service": c.CreateContainer(servicePod, real.ContainerSpec{Name: fmt.Sprint("service-", i), Resources: pinned("0-1")}),
			"batch":   c.CreateContainer(batchPod, real.ContainerSpec{Name: "b", Attempt: uint32(i), Resources: small}),
			"silent":  before,
		}
		restart.do()
		a.attached()
		same(t, "after a restart of "+restart.name, fmt.Sprint(snapshot(c, all)), was)
		if n, err := a.status(); err != nil || fmt.Sprint(n.CPUs.Grants) == "[]" || n.CPUs.Grants[0].Pod != "shop/db" || n.CPUs.Grants[0].CPUs != "1" {
			t.Errorf("grants after a restart of %s: %+v (%v)", restart.name, n.CPUs.Grants, err)
		}
		for name, id := range waiting {
			if name == "sidecar" {
				continue // the sidecar would share the owner's CPU, which the sampler would report, since it does not know pods
			}
			c.StartContainer(id)
			same(t, fmt.Sprintf("affinity of %s, created before a restart of %s", name, restart.name), c.FirstView(id).Affinity, "0")
		}
		same(t, "shares of a batch container created before the restarts", c.FirstView(waiting["batch"]).Cgroup["cpu.shares"], "256")
		for _, id := range waiting {
			c.RemoveContainer(id)
		}
		before = c.CreateContainer(crowd, real.ContainerSpec{Name: fmt.Sprint("waits-", i)})
	}
	found := sampler.Stop()
	t.Log(found)
	if found.Violations > 0 || found.Samples == 0 {
		t.Errorf("CPUs were shared: %v\n%s", found, strings.Join(found.First, "\n"))
	}
	side := c.CreateContainer(ownerPod, real.ContainerSpec{Name: "side", Resources: oneCPU})
	c.Restart()
	a.attached()
	c.StartContainer(side)
	same(t, "affinity of a sidecar created before the restarts", c.FirstView(side).Affinity, "1")

	// containerd does not report the end of a pod that it has restored at its start.
	c.StopPod(ownerPod)
	c.RemovePod(ownerPod)
	delete(all, "owner")
	all.become(t, c, "cpuset.cpus", map[string]string{"silent": "0-1", "both": "0-1", "service": "0-1", "batch": "0-1"})
}

// deleteState deletes the agent's state directory. The agent must not run.
func (a *trimtab) deleteState() {
	a.t.Helper()
	if err := os.RemoveAll(a.state()); err != nil {
		a.t.Fatal(err)
	}
}

// TestExplainIsComplete checks that explain reports hook, key and channel of every value of a pod of each kind, in its
// API and in its text.
func TestExplainIsComplete(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	a := startTrimtab(t, c, "")
	shared := c.RunContainer(c.RunPod(plain("web", "LS")), real.ContainerSpec{Name: "web"})
	spec := owning("db", "1")
	spec.Annotations[devices] = `{"gpu":[{"minor":0}]}`
	c.RunContainer(c.RunPod(spec), real.ContainerSpec{Name: "db", Resources: oneCPU})
	c.RunContainer(c.RunPod(real.PodSpec{Namespace: "shop", Name: "batch", Labels: labels("BE"), Annotations: map[string]string{
		extended: `{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"500"},"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"}}}}`,
	}}), real.ContainerSpec{Name: "a"})
	c.UpdateResources(shared, pinned("0-1"))
	type value struct{ value, hook, key, channel string }
	for pod, want := range map[string]map[string]value{
		"web": {"cpuset.cpus": {"0", "cpuset", qosClass, "nri update"}},
		"db": {
			"cpuset.cpus": {"1", "cpuset", assigned, "nri create"}, "cpu.quota": {"-1", "cpuset", assigned, "nri create"},
			"pod cpu.quota": {"-1", "cpuset", assigned, "kernel"}, "env NVIDIA_VISIBLE_DEVICES": {"0", "gpu", devices, "nri create"},
		},
		"batch": {
			"cpuset.cpus": {"0", "cpuset", qosClass, "nri create"}, "cpu.shares": {"512", "batch", extended, "nri create"},
			"cpu.quota": {"50000", "batch", extended, "nri create"}, "memory.limit": {fmt.Sprint(64 << 20), "batch", extended, "nri create"},
			"pod cpu.shares": {"512", "batch", extended, "kernel"}, "pod cpu.quota": {"50000", "batch", extended, "kernel"},
			"pod memory.limit": {fmt.Sprint(64 << 20), "batch", extended, "kernel"},
		},
	} {
		e, got := a.one("shop", pod), map[string]value{}
		for _, v := range e.Values {
			got[v.Field] = value{v.Value, v.Why.Hook, v.Why.Source, v.Channel}
		}
		for _, v := range e.PodValues {
			got["pod "+v.Field] = value{v.Value, v.Why.Hook, v.Why.Source, v.Channel}
		}
		same(t, "explain of "+pod, fmt.Sprint(got), fmt.Sprint(want))
		out, err := a.cli("explain", "-o", "wide", "shop/"+pod)
		for field, v := range want {
			for _, word := range []string{field, v.value, v.hook, v.key, v.channel} {
				if err != nil || !strings.Contains(out, word) {
					t.Errorf("explain of %s lacks %q for %s (%v):\n%s", pod, word, field, err, out)
				}
			}
		}
	}
	for _, args := range [][]string{{"status"}, {"status", "-o", "json"}, {"explain", "shop/db/db", "-o", "yaml"}} {
		if out, err := a.cli(args...); err != nil || !strings.Contains(out, "shop/db") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}
