package real_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// bypassConfig returns a configuration with attach: bypass.
func bypassConfig(c *real.Containerd, config string) string {
	return fmt.Sprintf("attach: bypass\ncri: {endpoint: \"unix://%s\"}\nbypass: {cgroupRoot: %s}\n%s", c.Socket(), c.CgroupParent(), config)
}

// TestBypass applies the values of reclaimed, shared and owning pods on a runtime without NRI, for pods that ran before
// the agent and for new ones.
func TestBypass(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t, real.WithoutNRI())
	needV1(t, c)
	playBypass(t, c)
}

// TestBypassContainerd16 does the same with Debian's containerd 1.6, which has no events: new cgroups tell the agent
// when to list.
func TestBypassContainerd16(t *testing.T) {
	t.Parallel()
	bypassOlder(t, real.V16, "containerd 1.6.")
}

// TestBypassContainerd17 does the same with a release that sends each event to only one listener, which must be the
// kubelet.
func TestBypassContainerd17(t *testing.T) {
	t.Parallel()
	bypassOlder(t, real.V17, "containerd v1.7.")
}

func bypassOlder(t *testing.T, r real.Release, name string) {
	t.Helper()
	needTwoCPUs(t)
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if !real.Privately(t, builtBinary+"="+program) {
		return
	}
	c := real.Start(t, real.WithRelease(r), real.WithoutNRI())
	needV1(t, c)
	a := playBypass(t, c)
	if n, err := a.status(); err != nil || len(n.Attachments) != 1 || !strings.HasPrefix(n.Attachments[0].Runtime, name) {
		t.Errorf("attached to %+v, %v", n.Attachments, err)
	}
}

func playBypass(t *testing.T, c *real.Containerd) *trimtab {
	t.Helper()
	early := c.RunContainer(c.RunPod(plain("early", "")), real.ContainerSpec{Name: "early"})
	offline := plain("offline", "")
	offline.QoS, offline.Annotations = real.BestEffort, map[string]string{"volcano.sh/preemptable": "true"}
	offlinePod := c.RunPod(offline)
	yielding := c.RunContainer(offlinePod, real.ContainerSpec{Name: "offline"})
	a := startTrimtab(t, c, bypassConfig(c, "hooks: {preemption: {enabled: true}, burst: {enabled: true}}"))
	awaitIdle(t, c, offlinePod)

	service := c.RunContainer(c.RunPod(plain("service", "LS")), real.ContainerSpec{Name: "service"})
	same(t, "affinity of the service", c.FirstView(service).Affinity, "0-1")

	batchPod := batchPod("batch")
	batch := c.RunContainer(c.RunPod(batchPod), real.ContainerSpec{Name: "batch"})
	inForce(t, c, batch, map[string]string{"cpu.shares": "512", "cpu.cfs_quota_us": "100000", "memory.limit_in_bytes": "134217728"})

	// rubik's pods: one with cpu.idle, and one that may burst above its quota.
	online := plain("online", "")
	online.Labels = map[string]string{"volcano.sh/preemptable": "false"}
	online.Annotations = map[string]string{"volcano.sh/quota-burst-time": "20000"}
	onlinePod := c.RunPod(online)
	bursting := c.RunContainer(onlinePod, real.ContainerSpec{Name: "online", Resources: oneCPU})
	inForce(t, c, bursting, map[string]string{"cpu.cfs_burst_us": "20000", "cpu.cfs_quota_us": "100000", "cpu.idle": "0"})
	same(t, "cpu.idle of the online pod", c.PodKernelFile(onlinePod, "cpu.idle"), "0")
	offline.Name, offline.Annotations, offline.Labels = "offline-late", nil, map[string]string{"volcano.sh/preemptable": "true"}
	latePod := c.RunPod(offline)
	lateYielding := c.RunContainer(latePod, real.ContainerSpec{Name: "offline"})
	awaitIdle(t, c, latePod)
	c.UpdateResources(bursting, &cri.LinuxContainerResources{CpuShares: 1024, CpuQuota: 100_000, CpuPeriod: 100_000})

	ownerPod := c.RunPod(owning("db", "1"))
	owner := c.RunContainer(ownerPod, real.ContainerSpec{Name: "db", Resources: oneCPU})
	inForce(t, c, owner, map[string]string{"cpuset.cpus": "1", "cpu.cfs_quota_us": "-1"})
	for _, id := range []real.ContainerID{early, service, batch, yielding, lateYielding, bursting} {
		inForce(t, c, id, map[string]string{"cpuset.cpus": "0"})
	}
	late := c.RunContainer(c.RunPod(plain("late", "")), real.ContainerSpec{Name: "late"})
	inForce(t, c, late, map[string]string{"cpuset.cpus": "0"})

	// A restart moves no container, with the checkpoint and without.
	a.kill()
	a.run()
	a.attached()
	inForce(t, c, owner, map[string]string{"cpuset.cpus": "1", "cpu.cfs_quota_us": "-1"})
	inForce(t, c, late, map[string]string{"cpuset.cpus": "0"})
	inForce(t, c, bursting, map[string]string{"cpuset.cpus": "0", "cpu.cfs_burst_us": "20000"})
	awaitIdle(t, c, offlinePod)

	c.StopContainer(owner)
	c.StopPod(ownerPod)
	for _, id := range []real.ContainerID{early, service, batch, late} {
		inForce(t, c, id, map[string]string{"cpuset.cpus": "0-1"})
	}
	return a
}

// inForce waits until the kernel has the values.
func inForce(t *testing.T, c *real.Containerd, id real.ContainerID, want map[string]string) {
	t.Helper()
	real.Eventually(t, patiently, func() error {
		var errs []error
		for file, value := range want {
			if got := c.KernelFile(id, file); got != value {
				errs = append(errs, fmt.Errorf("%s is %s, want %s", file, got, value))
			}
		}
		return errors.Join(errs...)
	})
}

func batchPod(name string) real.PodSpec {
	pod := plain(name, "BE")
	pod.QoS = real.BestEffort
	pod.Annotations = map[string]string{
		"node.koordinator.sh/extended-resource-spec": `{"containers":{"` + name + `":{"requests":{"kubernetes.io/batch-cpu":500,"kubernetes.io/batch-memory":"128Mi"},"limits":{"kubernetes.io/batch-cpu":1000,"kubernetes.io/batch-memory":"128Mi"}}}}`,
	}
	return pod
}
