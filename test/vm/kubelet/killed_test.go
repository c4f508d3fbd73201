package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/test/vm"
)

// proxySocket is where an agent with attach: cri serves by default.
const proxySocket = "/var/run/trimtab/cri.sock"

// rounds is the number of repetitions; TRIMTAB_SOAK sets a higher one.
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

// TestProxyKilled connects the kubelet to its runtime through the agent, with default sockets. It kills the agent
// repeatedly while the kubelet starts and ends pods, and another client calls the runtime in a loop. Every pod runs
// with its values, no other container ever runs on the owner's CPUs, and running containers continue.
func TestProxyKilled(t *testing.T) {
	t.Parallel()
	testTurns.Play(t)
	n := boot(t, map[string]any{"attach": "cri"}, map[string]any{"containerRuntimeEndpoint": "unix://" + proxySocket})
	n.apply(
		owner("db", "0-1", map[string]string{"cpu": "2", "memory": "128Mi"}),
		pod{name: "web", labels: map[string]string{class: "LS"}, requests: map[string]string{"cpu": "100m"}},
		pod{name: "job", labels: map[string]string{class: "BE"}, annotations: map[string]string{"node.koordinator.sh/extended-resource-spec": batch}},
	)
	wants := map[string]want{
		"db":  {cpus: "0-1", quota: -1, podQuota: -1, class: "dedicated", seat: "exclusive"},
		"web": {cpus: "2-3", quota: -1, class: "shared", seat: "shared"},
		"job": {cpus: "2-3", shares: 512, quota: 50_000, podShares: 512, podQuota: 50_000, memory: 128 << 20, podMemory: 128 << 20, class: "reclaimed"},
	}
	before := n.awaitAll("at first", wants)
	proxied := n.m.CRI(proxySocket)
	load, watch := n.call(proxied, before["db"].id), n.watch("0-1", before["db"].id, before)

	const (
		behind = 2 // pods that may still be starting
		each   = 4 // kills the agent while a pod starts: at once, with its sandbox, with its container, and later
	)
	name := func(i int) string { return fmt.Sprint("churn-", i) }
	own := want{cpus: "2-3", class: "shared", seat: "shared"}
	var gaps []time.Duration
	count := rounds(t, 20)
	for i := range count {
		if at := i / each; i%each == 0 {
			n.apply(pod{name: name(at), labels: map[string]string{class: "LS"}, requests: map[string]string{"cpu": "10m"}})
			if at >= behind {
				n.awaitAll("before it goes", map[string]want{name(at - behind): own})
				n.m.Run("rm", path.Join(manifests, name(at-behind)+".json"))
			}
		}
		n.reaches(name(i/each), i%each%3)
		n.a.Kill()
		killed := time.Now()
		if err := n.a.Run(); err != nil {
			t.Fatal(err)
		}
		n.await("the agent is back", func() error { return version(proxied) })
		gaps = append(gaps, time.Since(killed).Round(time.Millisecond))
	}
	for i := max(0, (count-1)/each+1-behind); i <= (count-1)/each; i++ {
		wants[name(i)] = own
	}
	n.unmoved(before, n.awaitAll("after all kills", wants))
	n.onlyRuns(len(wants))
	slices.Sort(gaps)
	t.Logf("%d kills; back after %v (median), %v (most), as seen from outside the machine; %s; %s", count, gaps[count/2], gaps[count-1], load(), watch())
}

func version(c vm.CRI) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := c.Version(ctx, &cri.VersionRequest{})
	return err
}

// reaches waits until a pod has reached a stage: none, a sandbox, or a container.
func (n *node) reaches(name string, stage int) {
	n.t.Helper()
	if stage == 0 {
		return
	}
	labels := map[string]string{"io.kubernetes.pod.name": static(name)}
	n.await(name+" begins", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		found, err := n.begun(ctx, stage, labels)
		if err != nil {
			return err
		}
		if found == 0 {
			return errors.New("there is nothing of it")
		}
		return nil
	})
}

// begun counts sandboxes at stage 1, and containers at stage 2, with labels.
func (n *node) begun(ctx context.Context, stage int, labels map[string]string) (int, error) {
	if stage == 1 {
		all, err := n.cri.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: labels}})
		return len(all.GetItems()), err
	}
	all, err := n.cri.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{LabelSelector: labels}})
	return len(all.GetContainers()), err
}

// onlyRuns waits until exactly this many containers run and as many pods are ready: nothing was left
// behind.
func (n *node) onlyRuns(want int) {
	n.t.Helper()
	n.await("what is left", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		ctrs, err := n.cri.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
			State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
		}})
		if err != nil {
			return err
		}
		pods, err := n.cri.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
			State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
		}})
		if err != nil {
			return err
		}
		if len(ctrs.Containers) != want || len(pods.Items) != want {
			return fmt.Errorf("%d containers run in %d pods, want %d", len(ctrs.Containers), len(pods.Items), want)
		}
		return nil
	})
}

// call calls the runtime through the agent repeatedly until the returned function is called, which returns
// the result. Calls fail only while no server runs.
func (n *node) call(through vm.CRI, id string) (stop func() string) {
	ctx, cancel := context.WithCancel(context.Background())
	var answered, lost atomic.Int64
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := through.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
				if err == nil {
					_, err = through.ListContainers(ctx, &cri.ListContainersRequest{})
				}
				switch {
				case err == nil:
					answered.Add(1)
				case status.Code(err) == codes.Unavailable:
					lost.Add(1)
					time.Sleep(20 * time.Millisecond) // no server runs
				case ctx.Err() == nil:
					n.t.Errorf("a call through the agent: %v", err)
					return
				}
			}
		})
	}
	end := sync.OnceFunc(func() { cancel(); all.Wait() })
	n.t.Cleanup(end)
	return func() string {
		end()
		if answered.Load() == 0 {
			n.t.Error("no call was answered")
		}
		return fmt.Sprintf("%d calls were answered, %d found nobody", answered.Load(), lost.Load())
	}
}

// look20 reads twenty times on which CPUs the process of each container may run, and its pod's values. It
// reads the process's identity first, because before the container's first instruction the process is the
// runtime's. The shell starts no process for it.
const look20 = `cd /sys/fs/cgroup; i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo
for d in kubepods/pod*/*/ kubepods/*/pod*/*/; do
read -r p <$d/cgroup.procs && read -r c </proc/$p/comm && read -r e <$d/cpuset.cpus.effective &&
read -r w <$d/../cpu.weight && read -r q <$d/../cpu.max && echo "$d $c $e weight $w quota $q"
done 2>/dev/null; done`

// watch reads repeatedly, until the returned function is called, which processes may run on an owner's
// CPUs, and whether the pods of permanent containers keep their weight and quota.
func (n *node) watch(cpus, id string, stay map[string]running) (stop func() string) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	looks, seen := 0, map[string]bool{} // by id: true for a container, false for a sandbox
	pods := map[string]string{}
	for _, r := range stay {
		pods[r.id] = ""
	}
	all.Go(func() {
		for ctx.Err() == nil {
			r, err := n.m.Exec(ctx, "sh", "-c", look20)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				n.t.Errorf("look at cgroups: %v", err)
				return
			}
			for line := range strings.Lines(r.Stdout) {
				line, values, _ := strings.Cut(strings.TrimSpace(line), " weight ")
				f := strings.Fields(line)
				if len(f) == 0 {
					looks++
				}
				if len(f) != 3 || f[1] != "probe" {
					continue
				}
				who := path.Base(f[0])
				if _, known := seen[who]; !known {
					seen[who] = n.isContainer(ctx, who)
				}
				if !seen[who] {
					continue
				}
				if was, stays := pods[who]; stays && was != "" && was != values {
					n.t.Errorf("the pod of %s had weight %s, and has weight %s", who, was, values)
					return
				} else if stays {
					pods[who] = values
				}
				if own := who == id; own != sameList(f[2], cpus) || !own && overlap(f[2], cpus) {
					n.t.Errorf("%s may run on %s, and %s belong to %s", who, f[2], cpus, id)
					return
				}
			}
		}
	})
	end := sync.OnceFunc(func() { cancel(); all.Wait() })
	n.t.Cleanup(end)
	return func() string {
		end()
		containers := 0
		for _, is := range seen {
			if is {
				containers++
			}
		}
		if looks == 0 || !seen[id] || containers < 4 {
			n.t.Errorf("%d looks at %d containers prove nothing", looks, containers)
		}
		return fmt.Sprintf("%d looks at %d containers", looks, containers)
	}
}

// isContainer asks the runtime, because sandboxes have cgroups of the same form, which are not narrowed.
func (n *node) isContainer(ctx context.Context, id string) bool {
	_, err := n.cri.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	return err == nil
}

func overlap(a, b string) bool {
	x, _ := topology.ParseList(a)
	y, _ := topology.ParseList(b)
	return slices.ContainsFunc(x, func(id int) bool { return slices.Contains(y, id) })
}
