package real_test

import (
	"fmt"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// TestUpdates sends the updates that a kubelet may send while CPU 1 is owned. None gives the CPU to another container;
// all other values take effect.
func TestUpdates(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	startTrimtab(t, c, "")
	crowd := c.RunPod(plain("crowd", ""))
	others := named{
		"silent":  c.RunContainer(crowd, real.ContainerSpec{Name: "silent"}),
		"both":    c.RunContainer(crowd, real.ContainerSpec{Name: "both", Resources: pinned("0-1")}),
		"service": c.RunContainer(c.RunPod(plain("service", "LS")), real.ContainerSpec{Name: "service"}),
	}
	waiting := c.CreateContainer(crowd, real.ContainerSpec{Name: "waiting"})
	ownerPod := c.RunPod(owning("db", "1"))
	owner := c.RunContainer(ownerPod, real.ContainerSpec{Name: "db", Resources: oneCPU})
	sampler := c.Sample(real.NoSharing(func(dir string) bool { return baseOf(dir) == string(owner) }))

	shares, memory := int64(1300), int64(80<<20) // a request that still pays for the owner's CPU
	for i, r := range []*cri.LinuxContainerResources{
		{CpusetCpus: "0-1"},
		{CpusetCpus: "1"},
		{CpusetCpus: "0"},
		{CpuShares: shares},
		{CpuShares: shares, CpusetCpus: "0-1"},
		{CpuQuota: 150_000, CpuPeriod: 100_000},
		{MemoryLimitInBytes: memory},
		{CpuShares: shares, CpuQuota: 60_000, CpuPeriod: 50_000, CpusetCpus: "0-1", MemoryLimitInBytes: memory},
	} {
		when := fmt.Sprintf("after update %d", i)
		c.UpdateResources(owner, r)
		same(t, "owner's CPUs "+when, c.KernelFile(owner, "cpuset.cpus"), "1")
		same(t, "owner's quota "+when, c.KernelFile(owner, "cpu.cfs_quota_us"), "-1")
		for _, id := range others {
			c.UpdateResources(id, r)
		}
		others.on(t, c, when, "cpuset.cpus", "0")
		c.UpdateResources(waiting, r)
	}
	all := named{"owner": owner}
	for name, id := range others {
		all[name] = id
		same(t, "quota of "+name, c.KernelFile(id, "cpu.cfs_quota_us"), "60000")
		same(t, "period of "+name, c.KernelFile(id, "cpu.cfs_period_us"), "50000")
	}
	all.on(t, c, "in the end", "cpu.shares", fmt.Sprint(shares))
	all.on(t, c, "in the end", "memory.limit_in_bytes", fmt.Sprint(memory))

	c.StartContainer(waiting)
	seen := c.FirstView(waiting)
	for file, want := range map[string]string{
		"cpuset.cpus": "0", "cpu.shares": fmt.Sprint(shares), "cpu.cfs_quota_us": "60000", "memory.limit_in_bytes": fmt.Sprint(memory),
	} {
		same(t, file+" of a container updated before its start", seen.Cgroup[file], want)
	}
	found := sampler.Stop()
	t.Log(found)
	if found.Violations > 0 || found.Samples == 0 {
		t.Errorf("the sampler found: %v %v", found, found.First)
	}
	// Requested CPUs that were owned are granted when they become free.
	c.UpdateResources(others["both"], pinned("1"))
	same(t, "CPUs of a container that requests owned ones", c.KernelFile(others["both"], "cpuset.cpus"), "0")
	c.RemovePod(ownerPod)
	others["waiting"] = waiting
	others.become(t, c, "cpuset.cpus", map[string]string{"silent": "0-1", "both": "1", "service": "0-1", "waiting": "0-1"})
}

// TestBatchUpdates: for the kubelet a batch pod is BestEffort, so it may send updates with BestEffort values
// repeatedly.
func TestBatchUpdates(t *testing.T) {
	t.Parallel()
	c := real.Start(t)
	needV1(t, c)
	startTrimtab(t, c, "")
	pod := c.RunPod(real.PodSpec{Namespace: "shop", Name: "batch", Labels: labels("BE"), Annotations: map[string]string{
		extended: `{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"500"},"limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"64Mi"}}}}`,
	}})
	id := c.RunContainer(pod, real.ContainerSpec{Name: "a", Resources: &cri.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100_000}})
	for i, r := range []*cri.LinuxContainerResources{
		{CpuShares: 2}, {MemoryLimitInBytes: 512 << 20}, {CpuQuota: -1, CpuPeriod: 100_000}, {CpuQuota: 10_000},
		{CpuShares: 2, CpuQuota: 20_000, CpuPeriod: 100_000, MemoryLimitInBytes: 32 << 20},
	} {
		c.UpdateResources(id, r)
		for file, want := range (batchValues{512, 100_000, 64 << 20}).files() {
			same(t, fmt.Sprintf("%s after update %d", file, i), c.KernelFile(id, file), want)
		}
	}
}

// TestUpdateDuringOwnerCreation sends updates while an owner is created. The runtime may write an update, which the
// agent answered before, after the other cpusets have been narrowed.
func TestUpdateDuringOwnerCreation(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	startTrimtab(t, c, "")
	others := named{}
	for i, class := range []string{"", "LS", "BE"} {
		name := fmt.Sprint("other-", i)
		others[name] = c.RunContainer(c.RunPod(plain(name, class)), real.ContainerSpec{Name: name})
	}
	for i := range rounds(t, 3) {
		pod := c.RunPod(owning(fmt.Sprint("db-", i), "1"))
		var all errgroup
		for _, id := range others {
			all.run(func() error { return c.TryUpdateResources(id, pinned("0-1")) })
		}
		c.RunContainer(pod, real.ContainerSpec{Name: "db", Resources: oneCPU})
		if err := all.wait(); err != nil {
			t.Fatal(err)
		}
		others.on(t, c, fmt.Sprintf("beside the owner of 1, round %d", i), "cpuset.cpus", "0")
		c.RemovePod(pod)
	}
}
