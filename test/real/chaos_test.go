package real_test

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// TestChaos kills agent, runtime or both at random while fifty containers are created and removed. Afterwards the
// kernel has all decided values and no CPUs have leaked. A container that has once lost an owner's CPU never gets it
// again. A release then restores all original values.
func TestChaos(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	playChaos(t, real.Start(t), "")
}

// TestChaosBypass does the same with bypass and a runtime without NRI.
func TestChaosBypass(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t, real.WithoutNRI())
	playChaos(t, c, bypassConfig(c, ""))
}

const (
	chaosPods  = 10
	chaosEach  = 5 // containers of a pod
	chaosCalm  = 2 * time.Minute
	chaosEnded = 100 * time.Millisecond      // a kubelet's pause after a failure
	mostInARow = int(chaosCalm / chaosEnded) // failures of one caller; the runtime is back long before
)

func playChaos(t *testing.T, c *real.Containerd, config string) {
	t.Helper()
	needV1(t, c)
	seed := chaosSeed(t)
	dice := rand.New(rand.NewPCG(seed, 1))
	pods, early := chaosPodsOf(c)
	found := cgroupFiles(t, c)
	a := startTrimtab(t, c, config)
	owner := c.RunContainer(c.RunPod(owning("db", "1")), real.ContainerSpec{Name: "db", Resources: oneCPU})
	inForce(t, c, owner, map[string]string{"cpuset.cpus": "1"})
	pid := c.ContainerPID(owner)
	sampler := c.Sample(timed(onceClear(string(owner))))

	storm := chaos{c: c, stop: make(chan struct{})}
	var all errgroup
	for i, pod := range pods {
		mine := rand.New(rand.NewPCG(seed, uint64(i)+2))
		all.run(func() error { return storm.churn(pod, mine) })
	}
	var kills []string
	for range rounds(t, 4) {
		kills = append(kills, a.strike(c, dice))
		awaitCreations(t, &storm)
	}
	close(storm.stop)
	if err := all.wait(); err != nil {
		t.Error(err)
	}
	a.attached()
	t.Logf("seed %d: %v; %d containers were made, %d calls failed and were repeated, the last of them: %v",
		seed, kills, storm.made.Load(), storm.failed.Load(), storm.last.Load())

	desired(t, c, a, owner)
	same(t, "the owner's process", c.ContainerPID(owner), pid)
	seen := sampler.Stop()
	t.Log(seen)
	if seen.Violations > 0 || seen.Samples == 0 {
		t.Errorf("CPUs were shared: %v\n%s", seen, strings.Join(seen.First, "\n"))
	}
	out, err := a.cli("release")
	t.Logf("release: %s", out)
	if err != nil {
		t.Errorf("release: %v", err)
	}
	asFound(t, c, found, early)
	checkOwnerReleased(t, c, owner)
	leaksNothing(t, a)
}

// chaosSeed is TRIMTAB_SEED, or a random seed; the test prints it.
func chaosSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("TRIMTAB_SEED")
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("TRIMTAB_SEED is %q, want a number", text)
	}
	return seed
}

// chaosPodsOf makes pods of all classes with one container each, before the first agent.
func chaosPodsOf(c *real.Containerd) (pods []real.PodID, early map[string]bool) {
	early = map[string]bool{}
	for i := range chaosPods {
		spec := plain(fmt.Sprint("pod-", i), []string{"", "LS", "BE"}[i%3])
		if i%5 == 2 {
			spec = batchPod(fmt.Sprint("batch-", i))
		}
		pod := c.RunPod(spec)
		id := c.RunContainer(pod, real.ContainerSpec{Name: spec.Name, Resources: small})
		pods, early[string(id)] = append(pods, pod), true
	}
	return pods, early
}

// small has the requests of every container of the test.
var small = &cri.LinuxContainerResources{CpuShares: 100, CpuPeriod: 100_000}

// strike kills the agent, the runtime or both, and starts them again, in random order.
func (a *trimtab) strike(c *real.Containerd, dice *rand.Rand) string {
	pause := func() { time.Sleep(time.Duration(dice.IntN(300)) * time.Millisecond) } // a random delay: the moment must not matter
	switch dice.IntN(4) {
	case 0:
		a.kill()
		pause()
		a.run()
		return "agent"
	case 1:
		c.Kill9AndRestart()
		return "runtime"
	case 2:
		a.kill()
		pause()
		c.Kill()
		pause()
		a.run()
		c.StartAgain()
		return "agent, runtime; agent back first"
	}
	c.Kill()
	pause()
	a.kill()
	c.StartAgain()
	pause()
	a.run()
	return "runtime, agent; runtime back first"
}

// chaos creates and removes containers.
type chaos struct {
	c            *real.Containerd
	stop         chan struct{}
	made, failed atomic.Int64
	last         atomic.Value // the last error of a call
}

// churn creates and removes containers of a pod until it must end, and leaves the full number. It repeats a failed call
// with another container.
func (s *chaos) churn(pod real.PodID, dice *rand.Rand) error {
	var live []real.ContainerID
	inARow := 0 // calls that failed
	for i := 0; ; i++ {
		ended := false
		select {
		case <-s.stop:
			ended = true
		default:
		}
		if ended && len(live) >= chaosEach-1 {
			return nil
		}
		if len(live) >= chaosEach-1 { // one existed before
			at := dice.IntN(len(live))
			if err := s.c.TryRemoveContainer(live[at]); err != nil {
				s.failed.Add(1)
			}
			live = slices.Delete(live, at, at+1)
		}
		id, err := s.c.TryCreateContainer(pod, real.ContainerSpec{Name: fmt.Sprint("c", i), Resources: small})
		if err == nil {
			err = s.c.TryStartContainer(id)
		}
		if err != nil {
			s.last.Store(err.Error())
			s.failed.Add(1)
			if inARow++; inARow > mostInARow {
				return fmt.Errorf("%d calls failed one after another, the last: %w", inARow, err)
			}
			time.Sleep(chaosEnded)
			continue
		}
		inARow = 0
		s.made.Add(1)
		live = append(live, id)
	}
}

// awaitCreations waits until containers are created again.
func awaitCreations(t *testing.T, s *chaos) {
	t.Helper()
	enough := s.made.Load() + chaosEach
	real.Eventually(t, chaosCalm, func() error {
		if n := s.made.Load(); n < enough {
			return fmt.Errorf("%d containers were made, want %d; %d calls failed, the last: %v", n, enough, s.failed.Load(), s.last.Load())
		}
		return nil
	})
}

// onceClear returns a judge: a container that has once lost the owner's CPUs never has them again, and the owner keeps
// to its own from its first instruction. A container that was created without an agent loses them a moment later.
func onceClear(owner string) func(real.Snapshot) error {
	clear, begun := map[string]bool{}, false
	return func(s real.Snapshot) error {
		var own string
		for dir, list := range s {
			if filepath.Base(dir) == owner {
				own = list
			}
		}
		if own == "" && !begun {
			return nil
		}
		if begun = true; own != "1" {
			return fmt.Errorf("the owner has CPUs %q", own)
		}
		for dir, list := range s {
			switch shares := overlap(list, own); {
			case filepath.Base(dir) == owner || list == "":
			case !shares:
				clear[dir] = true
			case clear[dir]:
				return fmt.Errorf("%s had lost the owner's CPUs and has %s again, with an owner of %s", dir, list, own)
			}
		}
		return nil
	}
}

// kernelNames has the files of fields in version 1.
var kernelNames = map[string]string{
	"cpuset.cpus": "cpuset.cpus", "cpu.shares": "cpu.shares", "cpu.quota": "cpu.cfs_quota_us", "memory.limit": "memory.limit_in_bytes",
}

// desired waits until the kernel has every decided value, none is unapplied, and only the owner has its CPU.
func desired(t *testing.T, c *real.Containerd, a *trimtab, owner real.ContainerID) {
	t.Helper()
	real.Eventually(t, chaosCalm, func() error {
		var n struct {
			Containers []struct {
				ID, State string
				Values    []struct {
					Field, Value, Note string
					Applied            bool
				}
			}
		}
		if err := a.get("/v1/status", &n); err != nil {
			return err
		}
		files := cgroupFiles(t, c)
		known := map[string]bool{}
		var unapplied []string
		for _, ctr := range n.Containers {
			known[ctr.ID] = ctr.State == "running"
			for _, v := range ctr.Values {
				file, inKernel := kernelNames[v.Field]
				if !v.Applied && ctr.State == "running" { // a container that was killed before its start has no cgroup
					unapplied = append(unapplied, fmt.Sprintf("%s %s of %s, %s: %s", v.Field, v.Value, ctr.ID[:8], ctr.State, v.Note))
				}
				if got := files[ctr.ID][file]; inKernel && ctr.State == "running" && got != v.Value {
					return fmt.Errorf("%s of %s is %q, desired %q", file, ctr.ID, got, v.Value)
				}
			}
		}
		for id, has := range files {
			if known[id] && id != string(owner) && has["cpuset.cpus"] != "0" {
				return fmt.Errorf("%s has CPUs %s beside the owner of 1", id, has["cpuset.cpus"])
			}
		}
		if len(unapplied) > 0 || len(n.Containers) < chaosPods*chaosEach {
			return fmt.Errorf("not in force: %q; %d containers are running", unapplied, len(n.Containers))
		}
		return nil
	})
}

// cgroupFiles reads the compared files of every cgroup of this runtime, by the last part of its path.
func cgroupFiles(t *testing.T, c *real.Containerd) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	for _, file := range kernelNames {
		controller, _, _ := strings.Cut(file, ".")
		root := filepath.Join("/sys/fs/cgroup", controller, c.CgroupParent())
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() || path == root {
				return nil //nolint:nilerr // cgroups may vanish meanwhile
			}
			text, err := os.ReadFile(filepath.Join(path, file))
			if err == nil {
				id := filepath.Base(path)
				if out[id] == nil {
					out[id] = map[string]string{}
				}
				out[id][file] = strings.TrimSpace(string(text))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// asFound compares pods and early containers with their values before any agent, and later ones with their requests.
func asFound(t *testing.T, c *real.Containerd, found map[string]map[string]string, early map[string]bool) {
	t.Helper()
	now := cgroupFiles(t, c)
	for id, files := range found {
		if got := now[id]; !maps.Equal(got, files) {
			t.Errorf("%s had %v and has after the release %v, %s", id, files, got, standing(c, id))
		}
	}
	var plain map[string]string // of a container without decisions
	for id := range early {
		plain = found[id]
	}
	later := 0
	for id, files := range now {
		if _, known := found[id]; known || len(id) != len(slices.Collect(maps.Keys(early))[0]) {
			continue
		}
		later++
		if files["cpu.shares"] == plain["cpu.shares"] && !maps.Equal(files, plain) {
			t.Errorf("%s has after the release %v, asked for %v, %s", id, files, plain, standing(c, id))
		}
	}
	if later < chaosPods {
		t.Errorf("only %d later containers were compared", later)
	}
}

// standing returns the runtime's status of a container.
func standing(c *real.Containerd, id string) string {
	status := c.Status(real.ContainerID(id))
	return fmt.Sprint(status.GetState(), " ", status.GetReason(), " ", status.GetMessage())
}

func checkOwnerReleased(t *testing.T, c *real.Containerd, owner real.ContainerID) {
	t.Helper()
	same(t, "what the owner has after the release",
		c.KernelFile(owner, "cpuset.cpus")+" "+c.KernelFile(owner, "cpu.cfs_quota_us")+" "+c.KernelFile(owner, "cpu.shares"),
		fmt.Sprint("0-1 ", oneCPU.CpuQuota, " ", oneCPU.CpuShares))
}

// leaksNothing checks that no grant is left.
func leaksNothing(t *testing.T, a *trimtab) {
	t.Helper()
	n, err := a.status()
	if err == nil && len(n.CPUs.Grants) > 0 {
		err = fmt.Errorf("after the release %+v", n.CPUs.Grants)
	}
	if err != nil {
		t.Error(err)
	}
}
