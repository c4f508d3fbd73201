package real_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

const (
	qosClass  = "koordinator.sh/qosClass"
	assigned  = "scheduling.koordinator.sh/resource-status"
	extended  = "node.koordinator.sh/extended-resource-spec"
	devices   = "scheduling.koordinator.sh/device-allocated"
	patiently = time.Minute
)

func labels(class string) map[string]string { return map[string]string{qosClass: class} }

func owning(name, cpus string) real.PodSpec {
	return real.PodSpec{
		Namespace: "shop", Name: name, QoS: real.Guaranteed, Labels: labels("LSR"),
		Annotations: map[string]string{assigned: fmt.Sprintf(`{"cpuset":%q}`, cpus)},
		Resources:   &cri.LinuxContainerResources{CpuShares: 1024, CpuPeriod: 100_000, CpuQuota: 100_000},
	}
}

var oneCPU = &cri.LinuxContainerResources{CpuShares: 1024, CpuPeriod: 100_000, CpuQuota: 100_000, MemoryLimitInBytes: 64 << 20}

// TestPromise is the main test on a real containerd: the pods' values are in force in the kernel at their first
// instruction.
func TestPromise(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	playPromise(t, c, startTrimtab(t, c, ""), "nri")
}

func playPromise(t *testing.T, c *real.Containerd, a *trimtab, mode string) {
	t.Helper()
	silentPod := c.RunPod(real.PodSpec{Namespace: "shop", Name: "silent", QoS: real.Burstable})
	silent := c.RunContainer(silentPod, real.ContainerSpec{Name: "app"})
	same(t, "CPUs of a silent container", c.KernelFile(silent, "cpuset.cpus"), "0-1")
	waiting := c.CreateContainer(silentPod, real.ContainerSpec{Name: "late"})
	servicePod := c.RunPod(real.PodSpec{Namespace: "shop", Name: "service", QoS: real.Burstable, Labels: labels("LS")})
	service := c.RunContainer(servicePod, real.ContainerSpec{Name: "app"})

	ownerPod := c.RunPod(owning("db", "1"))
	owner := c.RunContainer(ownerPod, real.ContainerSpec{Name: "db", Resources: oneCPU})
	seen := c.FirstView(owner)
	same(t, "affinity of the owner", seen.Affinity, "1")
	same(t, "quota of the owner at start", seen.Cgroup["cpu.cfs_quota_us"], "-1")
	same(t, "cpuset of the owner", c.KernelFile(owner, "cpuset.cpus"), "1")
	same(t, "quota of the owner", c.KernelFile(owner, "cpu.cfs_quota_us"), "-1")
	same(t, "quota of the owner's pod", c.PodKernelFile(ownerPod, "cpu.cfs_quota_us"), "-1")
	c.StartContainer(waiting)
	same(t, "affinity of a container created before and started after the owner", c.FirstView(waiting).Affinity, "0")
	for name, id := range map[string]real.ContainerID{"silent": silent, "service": service, "late": waiting} {
		same(t, "CPUs of "+name, c.KernelFile(id, "cpuset.cpus"), "0")
	}

	batch := checkBatch(t, c)
	checkGPU(t, c)
	checkUpdates(t, c, owner, silent, batch)
	checkExplain(t, a, mode)

	c.StopPod(ownerPod)
	c.RemovePod(ownerPod)
	for name, id := range map[string]real.ContainerID{"silent": silent, "service": service, "late": waiting} {
		real.Eventually(t, patiently, func() error {
			if got := c.KernelFile(id, "cpuset.cpus"); got != "0-1" {
				return fmt.Errorf("%s has CPUs %s after the owner left", name, got)
			}
			return nil
		})
	}
}

// checkBatch checks a batch pod with request 500m, limit 1000m, 64Mi.
func checkBatch(t *testing.T, c *real.Containerd) real.ContainerID {
	t.Helper()
	pod := c.RunPod(real.PodSpec{Namespace: "shop", Name: "batch", Labels: labels("BE"), Annotations: map[string]string{
		extended: `{"containers":{"worker":{"requests":{"kubernetes.io/batch-cpu":"500"},"limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"64Mi"}}}}`,
	}})
	id := c.RunContainer(pod, real.ContainerSpec{Name: "worker", Resources: &cri.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100_000}})
	seen := c.FirstView(id)
	for file, want := range map[string]string{
		"cpu.shares": "512", "cpu.cfs_quota_us": "100000", "memory.limit_in_bytes": fmt.Sprint(64 << 20), "cpuset.cpus": "0",
	} {
		same(t, "batch "+file+" at start", seen.Cgroup[file], want)
		same(t, "batch "+file, c.KernelFile(id, file), want)
	}
	same(t, "batch pod shares", c.PodKernelFile(pod, "cpu.shares"), "512")
	same(t, "batch pod quota", c.PodKernelFile(pod, "cpu.cfs_quota_us"), "100000")
	same(t, "batch pod memory", c.PodKernelFile(pod, "memory.limit_in_bytes"), fmt.Sprint(64<<20))
	return id
}

func checkGPU(t *testing.T, c *real.Containerd) {
	t.Helper()
	pod := c.RunPod(real.PodSpec{Namespace: "shop", Name: "train", QoS: real.Burstable, Annotations: map[string]string{
		devices: `{"gpu":[{"minor":0},{"minor":1}]}`,
	}})
	for _, name := range []string{"a", "b"} {
		id := c.RunContainer(pod, real.ContainerSpec{Name: name, Env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}})
		same(t, "GPUs of "+name, c.FirstView(id).Env["NVIDIA_VISIBLE_DEVICES"], "0,1")
	}
}

// checkUpdates sends CRI updates of values that Trimtab decides, which must not change them, and of values that the
// kubelet decides.
func checkUpdates(t *testing.T, c *real.Containerd, owner, silent, batch real.ContainerID) {
	t.Helper()
	for name, r := range map[string]*cri.LinuxContainerResources{
		"cpuset": {CpusetCpus: "0-1"}, "shares": {CpuShares: 2048}, "memory": {MemoryLimitInBytes: 96 << 20}, "quota": {CpuQuota: 150_000, CpuPeriod: 100_000},
	} {
		c.UpdateResources(owner, r)
		same(t, "owner's CPUs after an update of "+name, c.KernelFile(owner, "cpuset.cpus"), "1")
		same(t, "owner's quota after an update of "+name, c.KernelFile(owner, "cpu.cfs_quota_us"), "-1")
	}
	same(t, "owner's shares", c.KernelFile(owner, "cpu.shares"), "2048")
	same(t, "owner's memory", c.KernelFile(owner, "memory.limit_in_bytes"), fmt.Sprint(96<<20))
	c.UpdateResources(silent, &cri.LinuxContainerResources{CpusetCpus: "0-1", CpuShares: 300})
	same(t, "silent CPUs after an update", c.KernelFile(silent, "cpuset.cpus"), "0")
	same(t, "silent shares after an update", c.KernelFile(silent, "cpu.shares"), "300")
	c.UpdateResources(batch, &cri.LinuxContainerResources{CpuShares: 2})
	same(t, "batch shares after an update", c.KernelFile(batch, "cpu.shares"), "512")
}

// checkExplain checks that every value has its hook, its annotation and the channel that applied it.
func checkExplain(t *testing.T, a *trimtab, mode string) {
	t.Helper()
	for _, e := range append(a.explain("shop", "db", "db"), a.explain("shop", "batch", "")...) {
		if len(e.Values) == 0 {
			t.Errorf("explain has nothing for %+v", e)
		}
		for _, v := range append(e.Values, e.PodValues...) {
			if !v.Applied || v.Why.Hook == "" || !strings.Contains(v.Why.Source, "koordinator.sh/") || v.Channel == "" || v.Channel == "none" {
				t.Errorf("%s: %+v is incomplete", e.Pod, v)
			}
		}
	}
	out, err := exec.Command(a.path, "explain", "--socket", a.socket(), "shop/db").CombinedOutput()
	for _, word := range []string{"cpuset.cpus", assigned, mode, "exclusive"} {
		if err != nil || !strings.Contains(string(out), word) {
			t.Errorf("explain lacks %q (%v):\n%s", word, err, out)
		}
	}
	t.Logf("explain shop/db:\n%s", out)
}

// TestReload changes the configuration while containers run.
func TestReload(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	a := startTrimtab(t, c, "")
	batch := c.RunPod(real.PodSpec{Namespace: "shop", Name: "batch", Labels: labels("BE"), Annotations: map[string]string{
		extended: `{"containers":{"worker":{"requests":{"kubernetes.io/batch-cpu":"500"}}}}`,
	}})
	id := c.RunContainer(batch, real.ContainerSpec{Name: "worker", Resources: &cri.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100_000}})
	pid := c.ContainerPID(id)
	kernel := func(file, want string) {
		t.Helper()
		real.Eventually(t, patiently, func() error {
			if got := c.KernelFile(id, file); got != want {
				return fmt.Errorf("%s is %s, want %s", file, got, want)
			}
			return nil
		})
	}
	kernel("cpuset.cpus", "0-1")
	a.configure(c, `pools: {reserved: "0"}`)
	kernel("cpuset.cpus", "1")
	kernel("cpu.shares", "512")
	a.configure(c, `hooks: {batch: {enabled: false}}`)
	kernel("cpu.shares", "2")
	kernel("cpuset.cpus", "0-1")
	a.configure(c, `pools: {reserved: "7"}`)
	real.Eventually(t, patiently, func() error {
		n, err := a.status()
		if err == nil && !strings.Contains(n.ConfigError, "CPU 7 is not online") {
			err = fmt.Errorf("the status reports %q for the invalid configuration", n.ConfigError)
		}
		return err
	})
	same(t, "shares under a refused configuration", c.KernelFile(id, "cpu.shares"), "2")
	a.configure(c, "")
	kernel("cpu.shares", "512")
	same(t, "process", c.ContainerPID(id), pid)
}

// TestNothingMoves kills and restarts agent and runtime, with the agent's state deleted: containers keep their CPUs,
// and grants stay the same.
func TestNothingMoves(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	a := startTrimtab(t, c, "")
	ownerPod := c.RunPod(owning("db", "1"))
	ids := map[string]real.ContainerID{
		"owner":   c.RunContainer(ownerPod, real.ContainerSpec{Name: "db", Resources: oneCPU}),
		"service": c.RunContainer(c.RunPod(real.PodSpec{Namespace: "shop", Name: "service", QoS: real.Burstable, Labels: labels("LS")}), real.ContainerSpec{Name: "app"}),
		"silent":  c.RunContainer(c.RunPod(real.PodSpec{Namespace: "shop", Name: "silent", QoS: real.Burstable}), real.ContainerSpec{Name: "app"}),
	}
	before := snapshot(c, ids)
	owner := func(dir string) bool { return strings.HasSuffix(dir, string(ids["owner"])) }
	sampler := c.Sample(real.NoSharing(owner))
	for i, restart := range []func(){
		func() { a.kill(); a.run() },
		c.Restart,
		c.Kill9AndRestart,
		func() { a.kill(); c.Kill9AndRestart(); a.run() },
		func() { c.Stop(); a.kill(); a.run(); c.StartAgain() },
	} {
		if err := os.RemoveAll(a.state()); err != nil {
			t.Fatal(err)
		}
		restart()
		a.attached()
		same(t, fmt.Sprintf("what containers have after restart %d", i), fmt.Sprint(snapshot(c, ids)), fmt.Sprint(before))
		n, err := a.status()
		if err != nil || len(n.CPUs.Grants) != 1 || n.CPUs.Grants[0].Pod != "shop/db" || n.CPUs.Grants[0].CPUs != "1" {
			t.Errorf("grants after restart %d: %+v (%v)", i, n.CPUs.Grants, err)
		}
	}
	found := sampler.Stop()
	t.Log(found)
	if found.Violations > 0 || found.Samples == 0 {
		t.Errorf("CPUs were shared: %v", found)
	}

	second := c.RunContainer(c.RunPod(owning("db2", "1")), real.ContainerSpec{Name: "db", Resources: oneCPU})
	same(t, "CPUs of a second claimant", c.KernelFile(second, "cpuset.cpus"), "0")
	if e := a.explain("shop", "db2", "db"); len(e) != 1 || len(e[0].Problems) != 1 || !strings.Contains(e[0].Problems[0].Reason, "owned by shop/db") {
		t.Errorf("explain of the second claimant: %+v", e)
	}
	// After its restart containerd does not report the end of this pod.
	c.StopPod(ownerPod)
	c.RemovePod(ownerPod)
	third := c.RunContainer(c.RunPod(owning("db3", "1")), real.ContainerSpec{Name: "db", Resources: oneCPU})
	same(t, "CPUs of a container created after the owner's end", c.KernelFile(third, "cpuset.cpus"), "1")
	for _, id := range []real.ContainerID{ids["service"], ids["silent"], second} {
		same(t, "CPUs of the others after the owner's end", c.KernelFile(id, "cpuset.cpus"), "0")
	}
}

func snapshot(c *real.Containerd, ids map[string]real.ContainerID) map[string]string {
	out := map[string]string{}
	for name, id := range ids {
		out[name] = fmt.Sprint(c.ContainerPID(id), " ", c.KernelFile(id, "cpuset.cpus"), " ", c.KernelFile(id, "cpu.shares"), " ", c.KernelFile(id, "cpu.cfs_quota_us"))
	}
	return out
}

// TestChurn creates and removes pods of all classes from several goroutines, while a sampler reads every effective
// cpuset all the time.
func TestChurn(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	startTrimtab(t, c, "")
	for range 3 {
		pod := c.RunPod(real.PodSpec{Namespace: "shop", QoS: real.Burstable, Labels: labels("LS")})
		c.RunContainer(pod, real.ContainerSpec{Name: "app"})
	}
	var who owners
	sampler := c.Sample(real.NoSharing(who.has))
	const cycles = 6
	var all errgroup
	all.run(func() error {
		for i := range cycles {
			if err := cycle(c, owning(fmt.Sprintf("db-%d", i), fmt.Sprint(i%2)), &who); err != nil {
				return err
			}
		}
		return nil
	})
	for _, class := range []string{"", "LS", "BE"} {
		all.run(func() error {
			for range cycles {
				if err := cycle(c, real.PodSpec{Namespace: "shop", QoS: real.Burstable, Labels: labels(class)}, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.wait(); err != nil {
		t.Error(err)
	}
	found := sampler.Stop()
	t.Log(found)
	if found.Violations > 0 || found.Samples < 100 {
		t.Errorf("under churn: %v\n%s", found, strings.Join(found.First, "\n"))
	}
}

// cycle runs and removes one pod with one container. An owner is in who from its start to its stop.
func cycle(c *real.Containerd, spec real.PodSpec, who *owners) error {
	pod, err := c.TryRunPod(spec)
	if err != nil {
		return err
	}
	id, err := c.TryCreateContainer(pod, real.ContainerSpec{Name: "app", Resources: oneCPU})
	if err != nil {
		return err
	}
	if err := c.TryStartContainer(id); err != nil {
		return err
	}
	if who != nil {
		who.set(string(id), true)
		if got := c.KernelFile(id, "cpuset.cpus"); !strings.Contains(spec.Annotations[assigned], `"`+got+`"`) {
			return fmt.Errorf("%s was assigned %s and has CPUs %s", spec.Name, spec.Annotations[assigned], got)
		}
		who.set(string(id), false)
	}
	if err := c.TryStopContainer(id); err != nil {
		return err
	}
	return c.TryRemovePod(pod)
}
