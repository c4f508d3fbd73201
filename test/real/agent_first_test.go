package real_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// named has containers by the names of a test.
type named map[string]real.ContainerID

// on checks a file of each container's cgroup.
func (n named) on(t *testing.T, c *real.Containerd, when, file, want string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(n)) {
		same(t, fmt.Sprintf("%s of %s %s", file, name, when), c.KernelFile(n[name], file), want)
	}
}

// become waits until a file of each container's cgroup has the wanted text.
func (n named) become(t *testing.T, c *real.Containerd, file string, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		real.Eventually(t, patiently, func() error {
			if got := c.KernelFile(n[name], file); got != want[name] {
				return fmt.Errorf("%s of %s is %s, want %s", file, name, got, want[name])
			}
			return nil
		})
	}
}

func plain(name, class string) real.PodSpec {
	spec := real.PodSpec{Namespace: "shop", Name: name, QoS: real.Burstable}
	if class != "" {
		spec.Labels = labels(class)
	}
	return spec
}

func pinned(cpus string) *cri.LinuxContainerResources {
	return &cri.LinuxContainerResources{CpuShares: 100, CpusetCpus: cpus}
}

// TestFirstInstruction checks the time between the creation of an owner and its start: by then every other container,
// of any class and request, has lost the CPU, and no container that starts later gets it.
func TestFirstInstruction(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	startTrimtab(t, c, "")
	crowd := c.RunPod(plain("crowd", ""))
	servicePod := c.RunPod(plain("service", "LS"))
	others := named{
		"silent":       c.RunContainer(crowd, real.ContainerSpec{Name: "silent"}),
		"both":         c.RunContainer(crowd, real.ContainerSpec{Name: "both", Resources: pinned("0-1")}),
		"just that":    c.RunContainer(crowd, real.ContainerSpec{Name: "just-that", Resources: pinned("1")}),
		"service":      c.RunContainer(servicePod, real.ContainerSpec{Name: "service"}),
		"batch":        c.RunContainer(c.RunPod(plain("batch", "BE")), real.ContainerSpec{Name: "batch"}),
		"unclaiming":   c.RunContainer(c.RunPod(plain("unclaiming", "LSR")), real.ContainerSpec{Name: "lsr"}),
		"system class": c.RunContainer(c.RunPod(plain("system", "SYSTEM")), real.ContainerSpec{Name: "system"}),
	}
	before := map[string]string{}
	for name, id := range others {
		before[name] = c.KernelFile(id, "cpuset.cpus")
	}
	waiting := named{
		"waiting silent":  c.CreateContainer(crowd, real.ContainerSpec{Name: "w-silent"}),
		"waiting both":    c.CreateContainer(crowd, real.ContainerSpec{Name: "w-both", Resources: pinned("0-1")}),
		"waiting just":    c.CreateContainer(crowd, real.ContainerSpec{Name: "w-just", Resources: pinned("1")}),
		"waiting service": c.CreateContainer(servicePod, real.ContainerSpec{Name: "w-service"}),
	}
	var who owners
	sampler := c.Sample(real.NoSharing(who.has))

	ownerPod := c.RunPod(owning("db", "1"))
	owner := c.CreateContainer(ownerPod, real.ContainerSpec{Name: "db", Resources: oneCPU})
	who.set(string(owner), true)
	others.on(t, c, "before the owner's first instruction", "cpuset.cpus", "0")
	others["between"] = c.RunContainer(servicePod, real.ContainerSpec{Name: "between"})
	c.StartContainer(waiting["waiting both"])
	c.StartContainer(owner)
	checkOwner(t, c, ownerPod, owner)
	for name, id := range waiting {
		if name != "waiting both" {
			c.StartContainer(id)
		}
		seen := c.FirstView(id)
		same(t, "affinity at start of "+name, seen.Affinity, "0")
		same(t, "cpuset at start of "+name, seen.Cgroup["cpuset.cpus"], "0")
	}
	late := c.RunContainer(c.RunPod(plain("late", "")), real.ContainerSpec{Name: "late", Resources: pinned("0-1")})
	same(t, "affinity at start of a later container", c.FirstView(late).Affinity, "0")
	found := sampler.Stop()
	t.Log(found)
	if found.Violations > 0 || found.Samples == 0 || found.Containers < len(others)+len(waiting)+2 {
		t.Errorf("the sampler found: %v %v", found, found.First)
	}

	// A second container of the pod has the same CPUs: a pod owns them together.
	side := c.RunContainer(ownerPod, real.ContainerSpec{Name: "side", Resources: oneCPU})
	same(t, "affinity at start of the pod's second container", c.FirstView(side).Affinity, "1")

	c.RemovePod(ownerPod)
	before["between"] = "0-1"
	others.become(t, c, "cpuset.cpus", before)
	waiting.become(t, c, "cpuset.cpus", map[string]string{
		"waiting silent": "0-1", "waiting both": "0-1", "waiting just": "1", "waiting service": "0-1",
	})
}

func checkOwner(t *testing.T, c *real.Containerd, pod real.PodID, id real.ContainerID) {
	t.Helper()
	seen := c.FirstView(id)
	same(t, "affinity at start", seen.Affinity, "1")
	same(t, "allowed CPUs at start", seen.CPUsAllowed, "1")
	same(t, "CPUs counted before main", seen.NumCPU, 1)
	for file, want := range map[string]string{"cpuset.cpus": "1", "cpuset.effective_cpus": "1", "cpu.cfs_quota_us": "-1"} {
		same(t, file+" at start", seen.Cgroup[file], want)
		same(t, file, c.KernelFile(id, file), want)
	}
	same(t, "shares, which stay as requested", c.KernelFile(id, "cpu.shares"), "1024")
	same(t, "quota of the pod", c.PodKernelFile(pod, "cpu.cfs_quota_us"), "-1")
}

// batchRow is a row of Koordinator's table of batch resources, written by hand: request, limit and memory of each
// container, and the resulting values of each container and the pod. Memory of 0 is unlimited.
type batchRow struct {
	name, spec string
	containers map[string]batchValues
	pod        batchValues
}

type batchValues struct {
	shares, quota, memory int64
}

const unlimitedV1 = 9223372036854771712 // the kernel's number for unlimited memory

func batchTable() []batchRow {
	const gi2 = 2 << 30
	return []batchRow{
		{"request is limit, 500m and 2Gi", `"a":{"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"2Gi"},
			"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"2Gi"}}`,
			map[string]batchValues{"a": {512, 50_000, gi2}}, batchValues{512, 50_000, gi2}},
		{"and a second with limits alone", `"a":{"requests":{"kubernetes.io/batch-cpu":"500"},
			"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"2Gi"}},
			"b":{"limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"2Gi"}}`,
			map[string]batchValues{"a": {512, 50_000, gi2}, "b": {2, 100_000, gi2}}, batchValues{512, 150_000, 2 * gi2}},
		{"requests only", `"a":{"requests":{"kubernetes.io/batch-cpu":"500"}}`,
			map[string]batchValues{"a": {512, -1, 0}}, batchValues{512, -1, 0}},
		{"two, one without limits", `"a":{"requests":{"kubernetes.io/batch-cpu":"500"},
			"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"}},
			"b":{"requests":{"kubernetes.io/batch-cpu":"500"}}`,
			map[string]batchValues{"a": {512, 50_000, 64 << 20}, "b": {512, -1, 0}}, batchValues{1024, -1, 0}},
		{"a container the spec does not name", `"a":{"requests":{"kubernetes.io/batch-cpu":"100"},
			"limits":{"kubernetes.io/batch-cpu":"2000","kubernetes.io/batch-memory":"64Mi"}}`,
			map[string]batchValues{"a": {102, 200_000, 64 << 20}, "other": {2, -1, 0}}, batchValues{102, 200_000, 64 << 20}},
		{"no batch resources", ``, map[string]batchValues{"a": {2, -1, 0}}, batchValues{2, -1, 0}},
	}
}

// TestBatchTable checks each row: the values of a container at its first instruction, and those of its pod.
func TestBatchTable(t *testing.T) {
	t.Parallel()
	c := real.Start(t)
	needV1(t, c)
	startTrimtab(t, c, "")
	for i, row := range batchTable() {
		spec := real.PodSpec{Namespace: "shop", Name: fmt.Sprint("batch-", i), Labels: labels("BE")}
		if row.spec != "" {
			spec.Annotations = map[string]string{extended: `{"containers":{` + row.spec + `}}`}
		}
		pod := c.RunPod(spec)
		for _, name := range slices.Sorted(maps.Keys(row.containers)) {
			id := c.RunContainer(pod, real.ContainerSpec{Name: name, Resources: &cri.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100_000}})
			seen := c.FirstView(id)
			for file, want := range row.containers[name].files() {
				same(t, fmt.Sprintf("%s: %s of %s at start", row.name, file, name), seen.Cgroup[file], want)
				same(t, fmt.Sprintf("%s: %s of %s", row.name, file, name), c.KernelFile(id, file), want)
			}
		}
		for file, want := range row.pod.files() {
			same(t, fmt.Sprintf("%s: %s of the pod", row.name, file), c.PodKernelFile(pod, file), want)
		}
	}
}

func (v batchValues) files() map[string]string {
	if v.memory == 0 {
		v.memory = unlimitedV1
	}
	return map[string]string{
		"cpu.shares": fmt.Sprint(v.shares), "cpu.cfs_quota_us": fmt.Sprint(v.quota), "memory.limit_in_bytes": fmt.Sprint(v.memory),
	}
}

// TestGPUs: every container of the pod gets the variable, also if it had another value, and no container of other pods
// does.
func TestGPUs(t *testing.T) {
	t.Parallel()
	c := real.Start(t)
	startTrimtab(t, c, "")
	spec := plain("train", "")
	spec.Annotations = map[string]string{devices: `{"gpu":[{"minor":3},{"minor":1}]}`}
	pod := c.RunPod(spec)
	for name, env := range map[string]map[string]string{
		"none": nil, "all": {"NVIDIA_VISIBLE_DEVICES": "all", "OTHER": "kept"}, "void": {"NVIDIA_VISIBLE_DEVICES": "void"},
	} {
		seen := c.FirstView(c.RunContainer(pod, real.ContainerSpec{Name: name, Env: env})).Env
		same(t, "GPUs of "+name, seen["NVIDIA_VISIBLE_DEVICES"], "3,1")
		same(t, "another variable of "+name, seen["OTHER"], env["OTHER"])
	}
	seen := c.FirstView(c.RunContainer(c.RunPod(plain("web", "")), real.ContainerSpec{})).Env
	if value, has := seen["NVIDIA_VISIBLE_DEVICES"]; has {
		t.Errorf("a pod without GPUs sees %q", value)
	}
}

func baseOf(dir string) string { return filepath.Base(dir) }
