package real_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/trimtab/trimtab/test/real"
)

// TestTwoAgents starts a second agent for a real containerd over NRI, with its own state directory, key and status
// socket. It stays on standby and names the first agent. No request is refused while it waits or takes over, and owners
// keep their CPUs.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	one := startTrimtab(t, c, "")
	pid := one.cmd.Process.Pid
	two := newTrimtab(t)
	two.configure(c, "")
	two.run()
	waits := func() error {
		var n struct{ Standby string }
		err := two.get("/v1/status", &n)
		for _, want := range []string{fmt.Sprintf("process %d", pid), one.config(), "attach: nri", c.CgroupParent()} {
			if err == nil && !strings.Contains(n.Standby, want) {
				err = fmt.Errorf("the second agent reports %q, want %q in it", n.Standby, want)
			}
		}
		return err
	}
	real.Eventually(t, patiently, waits)
	ownerPod := c.RunPod(owning("db", "1"))
	owner := c.RunContainer(ownerPod, real.ContainerSpec{Name: "db", Resources: oneCPU}) // with two active agents it would be refused
	checkOwner(t, c, ownerPod, owner)
	if err := waits(); err != nil {
		t.Error(err)
	}
	if strings.Contains(two.out.String(), "attached to runtime") {
		t.Error("the second agent attached")
	}

	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = one.cmd.Process.Signal(syscall.SIGTERM)
		_ = one.cmd.Wait()
		one.cmd = nil
	}()
	for i := 0; ; i++ {
		pod := c.RunPod(plain(fmt.Sprint("between-", i), "LS"))
		c.RemoveContainer(c.RunContainer(pod, real.ContainerSpec{Name: "a"}))
		c.StopPod(pod)
		c.RemovePod(pod)
		select {
		case <-gone:
		default:
			continue
		}
		break
	}
	two.attached()
	same(t, "CPUs of the owner after the hand-over", c.KernelFile(owner, "cpuset.cpus"), "1")
	if n, err := two.status(); err != nil || len(n.CPUs.Grants) != 1 || n.CPUs.Grants[0].CPUs != "1" {
		t.Errorf("grants after the hand-over: %+v, %v", n.CPUs.Grants, err)
	}
	service := c.RunContainer(c.RunPod(plain("service", "LS")), real.ContainerSpec{Name: "service"})
	same(t, "affinity of a later pod", c.FirstView(service).Affinity, "0")
}
