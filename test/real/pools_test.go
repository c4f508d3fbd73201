package real_test

import (
	"testing"

	"github.com/trimtab/trimtab/test/real"
)

// TestPools uses placement.policy pools. A pod of class dedicated gets the CPU that no shared pool needs. All other
// containers lose it before the pod's first instruction. Restarts move nothing, and the pod's end restores the pools.
func TestPools(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	a := startTrimtab(t, c, "placement: {policy: pools, reclaim: leftover}")
	others := named{
		"silent":    c.RunContainer(c.RunPod(plain("silent", "")), real.ContainerSpec{Name: "app"}),
		"shared":    c.RunContainer(c.RunPod(plain("shared", "LS")), real.ContainerSpec{Name: "app"}),
		"reclaimed": c.RunContainer(c.RunPod(plain("reclaimed", "BE")), real.ContainerSpec{Name: "app"}),
	}
	before := map[string]string{"silent": "0-1", "shared": "0", "reclaimed": "1"}
	others.become(t, c, "cpuset.cpus", before)

	var who owners
	sampler := c.Sample(real.NoSharing(who.has))
	pod := c.RunPod(real.PodSpec{
		Namespace: "shop", Name: "db", QoS: real.Guaranteed, Annotations: map[string]string{"katalyst.kubewharf.io/qos_level": "dedicated_cores"},
	})
	owner := c.CreateContainer(pod, real.ContainerSpec{Name: "db", Resources: oneCPU})
	who.set(string(owner), true)
	others.on(t, c, "before the owner's first instruction", "cpuset.cpus", "0")
	c.StartContainer(owner)
	for _, at := range []struct {
		when    string
		restart func()
	}{
		{"at its start", func() {}},
		{"after a restart of the agent", func() { a.kill(); a.run(); a.attached() }},
		{"after a restart of the runtime", func() { c.Restart(); a.attached() }},
	} {
		at.restart()
		same(t, "CPUs of the owner "+at.when, c.KernelFile(owner, "cpuset.cpus"), "1")
		others.on(t, c, at.when, "cpuset.cpus", "0")
	}
	same(t, "affinity of the owner at its start", c.FirstView(owner).Affinity, "1")
	found := sampler.Stop()
	t.Log(found)
	if found.Violations > 0 || found.Samples == 0 {
		t.Errorf("the sampler saw: %v %v", found, found.First)
	}
	c.RemovePod(pod)
	others.become(t, c, "cpuset.cpus", before)
}
