package real_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// rounds is the number of restarts: few in make test, TRIMTAB_SOAK in make soak.
func rounds(t *testing.T, few int) int {
	t.Helper()
	text := os.Getenv("TRIMTAB_SOAK")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("TRIMTAB_SOAK is %q, want a number of rounds", text)
	}
	return n
}

// upPods is the number of pods that run during the restarts.
const upPods = 20

// TestRestarts restarts containerd repeatedly, and the agent sometimes, with running pods and creations in flight.
// After each round the agent has one connection, no container has moved, and new pods get their values.
func TestRestarts(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	a := startTrimtab(t, c, "")
	ids := map[string]real.ContainerID{"owner": c.RunContainer(c.RunPod(owning("db", "1")), real.ContainerSpec{Name: "db", Resources: oneCPU})}
	for i := range upPods - 1 {
		class := []string{"", "LS", "BE"}[i%3]
		pod := c.RunPod(real.PodSpec{Namespace: "shop", QoS: real.Burstable, Labels: labels(class)})
		ids[fmt.Sprint(class, i)] = c.RunContainer(pod, real.ContainerSpec{Name: "app", Resources: &cri.LinuxContainerResources{CpuShares: 100}})
	}
	before := fmt.Sprint(snapshot(c, ids))
	n := rounds(t, 4)
	slowest, failed, fds := time.Duration(0), 0, 0
	for i := range n {
		var flight errgroup
		flight.run(func() error { return inFlight(t, c, false) })
		start := time.Now()
		switch {
		case i%10 == 9:
			a.kill()
			c.Kill9AndRestart()
			a.run()
		case i%5 == 4:
			a.kill()
			a.run()
		case i%2 == 0:
			c.Kill9AndRestart()
		default:
			c.Restart()
		}
		a.attached()
		slowest = max(slowest, time.Since(start))
		if flight.wait() != nil {
			failed++ // the runtime was stopped; a kubelet would retry
		}
		real.Eventually(t, patiently, func() error {
			err := inFlight(t, c, true)
			if err != nil && !leftSnapshot(err) {
				t.Fatalf("round %d: a pod after it: %v", i, err)
			}
			return err
		})
		same(t, fmt.Sprintf("what containers have after round %d", i), fmt.Sprint(snapshot(c, ids)), before)
		if i%10 <= 3 {
			fds = a.sockets()
			if fds > 3 { // the connection, the status listener, its lock or an open status request
				t.Errorf("round %d: the agent has %d sockets", i, fds)
			}
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d rounds with %d running pods: attached again after at most %v, %d creations failed while the runtime was stopped, %d sockets at the end",
		n, upPods, slowest.Round(time.Millisecond), failed, fds)
}

// leftSnapshot reports whether containerd was killed between making a snapshot's directory and recording it. It uses
// the same number again until its clean-up, and a kubelet retries.
func leftSnapshot(err error) bool {
	return strings.Contains(err.Error(), "failed to rename") && strings.Contains(err.Error(), "file exists")
}

// inFlight runs and removes a pod. If check is set, the pod must not have the owned CPU: from its start, or, if the
// runtime restarted before the agent, from the agent's start on.
func inFlight(t *testing.T, c *real.Containerd, check bool) error {
	t.Helper()
	pod, err := c.TryRunPod(real.PodSpec{Namespace: "shop", QoS: real.Burstable, Labels: labels("LS")})
	if err != nil {
		return err
	}
	id, err := c.TryCreateContainer(pod, real.ContainerSpec{Name: "app", Resources: &cri.LinuxContainerResources{CpuShares: 100}})
	if err != nil {
		return err
	}
	if err := c.TryStartContainer(id); err != nil {
		return err
	}
	if check {
		real.Eventually(t, patiently, func() error {
			if got := c.KernelFile(id, "cpuset.cpus"); got != "0" {
				return fmt.Errorf("a new pod has CPUs %s beside the owner of 1", got)
			}
			return nil
		})
	}
	if err := c.TryStopContainer(id); err != nil {
		return err
	}
	return c.TryRemovePod(pod)
}

// sockets returns the number of open sockets of the agent's process.
func (a *trimtab) sockets() int {
	a.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", a.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		a.t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if to, err := os.Readlink(dir + "/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}
