package real_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/real"
)

// TestChurnWithOwners runs two goroutines whose owners alternate between both CPUs. Five others create and remove pods
// of all classes, keep containers between creation and start, and update them. A sampler reads every effective cpuset
// all the time. Some owners are refused: two may request the same CPU, or the last one.
func TestChurnWithOwners(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	a := startTrimtab(t, c, "")
	stay := named{}
	for _, class := range []string{"", "LS", "BE"} {
		stay["stays "+class] = c.RunContainer(c.RunPod(plain("stays-"+strings.ToLower(class), class)), real.ContainerSpec{Name: "app"})
	}
	crowd := c.RunPod(plain("crowd", ""))
	var who owners
	sampler := c.Sample(timed(real.NoSharing(who.has)))
	n := rounds(t, 5)
	var all errgroup
	granted := make([]int, 2)
	for side := range 2 {
		all.run(func() error {
			for i := range n {
				has, err := ownerCycle(c, a, fmt.Sprintf("db-%d-%d", side, i), fmt.Sprint((i+side)%2), &who)
				if err != nil {
					return err
				}
				if has {
					granted[side]++
				}
			}
			return nil
		})
	}
	for i, class := range []string{"", "LS", "BE"} {
		all.run(func() error {
			for j := range n {
				if err := waitingCycle(c, plain(fmt.Sprintf("churn-%d-%d", i, j), class)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	all.run(func() error { // containers are created and removed in one pod
		for range 2 * n {
			id, err := c.TryCreateContainer(crowd, real.ContainerSpec{Resources: pinned("0-1")})
			if err != nil {
				return err
			}
			if err := c.TryStartContainer(id); err != nil {
				return err
			}
			if err := c.TryRemoveContainer(id); err != nil {
				return err
			}
		}
		return nil
	})
	all.run(func() error { // and the kubelet updates them
		for i := range 4 * n {
			for name, id := range stay {
				if err := c.TryUpdateResources(id, pinned([]string{"0-1", "0", "1"}[i%3])); err != nil {
					return fmt.Errorf("update %s: %w", name, err)
				}
			}
		}
		return nil
	})
	if err := all.wait(); err != nil {
		t.Error(err)
	}
	found := sampler.Stop()
	t.Logf("%v; owners granted %v of %d each", found, granted, n)
	if found.Violations > 0 || found.Samples < 100 || found.States < 10 || granted[0]+granted[1] == 0 {
		t.Errorf("under churn: %v\n%s", found, strings.Join(found.First, "\n"))
	}
	if s, err := a.status(); err != nil || len(s.CPUs.Grants) > 0 {
		t.Errorf("grants when all owners have gone: %+v, %v", s.CPUs.Grants, err)
	}
}

// timed adds the time to a judge's error, to find the moment in the agent's log.
func timed(judge func(real.Snapshot) error) func(real.Snapshot) error {
	return func(s real.Snapshot) error {
		if err := judge(s); err != nil {
			return fmt.Errorf("%s: %w", time.Now().UTC().Format("15:04:05.000"), err)
		}
		return nil
	}
}

// ownerCycle runs and removes a pod that requests an exclusive CPU, and reports whether the pod got it. If so, the
// sampler treats it as an owner from before its first instruction until its end.
func ownerCycle(c *real.Containerd, a *trimtab, name, cpu string, who *owners) (bool, error) {
	pod, err := c.TryRunPod(owning(name, cpu))
	if err != nil {
		return false, err
	}
	id, err := c.TryCreateContainer(pod, real.ContainerSpec{Name: "db", Resources: oneCPU})
	if err != nil {
		return false, err
	}
	n, err := a.status()
	if err != nil {
		return false, err
	}
	owner := false
	for _, g := range n.CPUs.Grants {
		owner = owner || g.Pod == "shop/"+name && g.CPUs == cpu
	}
	who.set(string(id), owner)
	defer who.set(string(id), false)
	if err := c.TryStartContainer(id); err != nil {
		return owner, err
	}
	seen, err := c.TryFirstView(id)
	if err != nil {
		return owner, err
	}
	quota := map[bool]string{true: "-1", false: fmt.Sprint(oneCPU.CpuQuota)}[owner]
	if owner && seen.Affinity != cpu || seen.Cgroup["cpu.cfs_quota_us"] != quota {
		return owner, fmt.Errorf("%s asked for CPU %s (granted: %v), started on %s with quota %s",
			name, cpu, owner, seen.Affinity, seen.Cgroup["cpu.cfs_quota_us"])
	}
	if err := c.TryStopContainer(id); err != nil {
		return owner, err
	}
	return owner, c.TryRemovePod(pod)
}

// waitingCycle runs and removes a pod whose containers are all created before the first one starts.
func waitingCycle(c *real.Containerd, spec real.PodSpec) error {
	pod, err := c.TryRunPod(spec)
	if err != nil {
		return err
	}
	var ids []real.ContainerID
	for i := range 3 {
		id, err := c.TryCreateContainer(pod, real.ContainerSpec{Name: fmt.Sprint("c", i)})
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		if err := c.TryStartContainer(id); err != nil {
			return err
		}
	}
	return c.TryRemovePod(pod)
}

// TestSamplerFindsSharedCPU plants the fault that the sampler must find: a write that gives an owned CPU to another
// container.
func TestSamplerFindsSharedCPU(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	startTrimtab(t, c, "")
	other := c.RunContainer(c.RunPod(plain("thief", "")), real.ContainerSpec{Name: "thief"})
	owner := c.RunContainer(c.RunPod(owning("db", "1")), real.ContainerSpec{Name: "db", Resources: oneCPU})
	same(t, "CPUs before", c.KernelFile(other, "cpuset.cpus"), "0")
	seen := make(chan struct{}, 1)
	judge := real.NoSharing(func(dir string) bool { return baseOf(dir) == string(owner) })
	sampler := c.Sample(func(s real.Snapshot) error {
		err := judge(s)
		if err != nil {
			select {
			case seen <- struct{}{}:
			default:
			}
		}
		return err
	})
	c.WriteKernelFile(other, "cpuset.cpus", "0-1")
	<-seen
	found := sampler.Stop()
	t.Log(found)
	if found.Violations == 0 {
		t.Error("the sampler did not find the shared CPU")
	}
	// The next update of that container repairs its cpuset.
	c.UpdateResources(other, pinned("0-1"))
	same(t, "CPUs after an update", c.KernelFile(other, "cpuset.cpus"), "0")
}
