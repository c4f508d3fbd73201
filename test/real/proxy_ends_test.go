package real_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// TestProxyDetectsExits lets containers exit by themselves, which no CRI call reports. By its own events the agent
// detects that within a second. The median of five counts, since a busy machine may be late once.
func TestProxyDetectsExits(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t, real.WithoutNRI())
	needV1(t, c)
	a := startProxy(t, c, "")
	var took []time.Duration
	for i := range 5 {
		name := fmt.Sprint("brief-", i)
		id := c.RunContainer(c.RunPod(plain(name, "LS")), real.ContainerSpec{Name: "app", Args: []string{"exit", "0"}})
		c.WaitExit(id)
		ended := time.Now() // the runtime itself may take a second on a busy machine
		real.Eventually(t, patiently, func() error {
			at, err := a.noted("StopContainer", "shop/"+name)
			if err == nil {
				took = append(took, max(0, at.Sub(ended)))
			}
			return err
		})
	}
	slices.Sort(took)
	t.Logf("noticed after %v", took)
	if took[2] > time.Second {
		t.Errorf("noticed after %v (median), want a second", took[2])
	}
	t.Logf("%d KiB resident", a.resident())
}

// noted returns the time of an event in the agent's journal.
func (a *trimtab) noted(kind, pod string) (time.Time, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://agent/v1/events", nil)
	if err != nil {
		return time.Time{}, err
	}
	answer, err := a.web.Do(req)
	if err != nil {
		return time.Time{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return time.Time{}, err
	}
	for line := range strings.Lines(string(text)) {
		var ev struct {
			Kind, Pod string
			Time      time.Time
		}
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			return time.Time{}, err
		}
		if ev.Kind == kind && ev.Pod == pod {
			return ev.Time, nil
		}
	}
	return time.Time{}, fmt.Errorf("no %s of %s", kind, pod)
}

// knowsOnly waits until the agent reports exactly these containers, and this number of grants.
func (a *trimtab) knowsOnly(grants int, ids ...real.ContainerID) {
	a.t.Helper()
	var want []string
	for _, id := range ids {
		want = append(want, string(id))
	}
	slices.Sort(want)
	real.Eventually(a.t, patiently, func() error {
		n, err := a.status()
		var have []string
		for _, c := range n.Containers {
			have = append(have, c.ID)
		}
		slices.Sort(have)
		if err == nil && (!slices.Equal(have, want) || len(n.CPUs.Grants) != grants) {
			err = fmt.Errorf("the agent reports %v and grants %v, want %v and %d grants", n.Containers, n.CPUs.Grants, want, grants)
		}
		return err
	})
}

// TestProxyCancelledCalls cancels a kubelet's calls after different times. Whatever the runtime has done by then, in
// the end the agent has no container that the runtime lacks, and no grant without a container.
func TestProxyCancelledCalls(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t, real.WithoutNRI())
	needV1(t, c)
	a := startProxy(t, c, "")
	web := c.RunContainer(c.RunPod(plain("web", "LS")), real.ContainerSpec{Name: "app"})
	codes, left := map[string]int{}, 0
	for i := range 12 {
		after := time.Duration(i*i) * time.Millisecond // a creation takes some 30 ms, a start some 100
		pod := c.RunPod(owning(fmt.Sprint("db-", i), "1"))
		ctx, cancel := context.WithTimeout(context.Background(), after+time.Millisecond)
		_, err := c.CRI().CreateContainer(ctx, c.CreateRequest(pod, real.ContainerSpec{Name: "db", Resources: oneCPU}))
		cancel()
		codes["create "+code(err)]++
		id, err := c.TryCreateContainer(pod, real.ContainerSpec{Name: "db", Attempt: 1, Resources: oneCPU})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel = context.WithTimeout(context.Background(), after+time.Millisecond)
		_, err = c.CRI().StartContainer(ctx, &cri.StartContainerRequest{ContainerId: string(id)})
		cancel()
		codes["start "+code(err)]++
		if state(c, id) == cri.ContainerState_CONTAINER_RUNNING {
			same(t, "CPUs of an owner", c.KernelFile(id, "cpuset.cpus"), "1")
		}
		// A cancelled start may continue in the runtime, which does not remove a starting container; a kubelet repeats the
		// call.
		real.Eventually(t, patiently, func() error {
			err := c.TryRemovePod(pod)
			if leftTask(c, id, err) {
				left++
				a.restartRuntime(c)
			}
			return err
		})
	}
	t.Logf("%v; containerd left the task of %d starts", codes, left)
	if left > 2 { // one in a hundred is usual
		t.Errorf("containerd left the task of %d starts, want 2 at most", left)
	}
	if codes["create DeadlineExceeded"] == 0 || codes["start DeadlineExceeded"] == 0 || codes["create OK"] == 0 {
		t.Errorf("calls were not cancelled both early and late: %v", codes)
	}
	a.knowsOnly(0, web)
	real.Eventually(t, patiently, func() error {
		if got := c.KernelFile(web, "cpuset.cpus"); got != "0-1" {
			return fmt.Errorf("web has CPUs %s after the end of all owners", got)
		}
		return nil
	})
}

// TestProxyRuntimeKilled kills the runtime during calls. Callers get the same errors as without a proxy. Afterwards
// agent and runtime have the same containers.
func TestProxyRuntimeKilled(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t, real.WithoutNRI())
	needV1(t, c)
	a := startProxy(t, c, "")
	owner := c.RunContainer(c.RunPod(owning("db", "1")), real.ContainerSpec{Name: "db", Resources: oneCPU})
	l := load{c: c, stop: make(chan struct{})}
	var all errgroup
	for _, class := range []string{"LS", "BE"} {
		all.run(func() error { return l.churn(class) })
	}
	for i := range 4 {
		l.wait(t, int64(5+i))
		c.Kill9AndRestart()
		answers(t, c)
	}
	close(l.stop)
	if err := all.wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d pods ran in %d calls, %d of them repeated, %d containers created again", l.pods.Load(), l.calls.Load(), l.again.Load(), l.anew.Load())
	a.attached()
	same(t, "owner after the runtime was killed", c.KernelFile(owner, "cpuset.cpus"), "1")
	removeLeftPods(t, c, owner)
	a.knowsOnly(1, owner)
	late := c.RunContainer(c.RunPod(plain("late", "LS")), real.ContainerSpec{Name: "app"})
	same(t, "affinity of a container started afterwards", c.FirstView(late).Affinity, "0")
}

// removeLeftPods removes unknown pods, as a kubelet does.
func removeLeftPods(t *testing.T, c *real.Containerd, but ...real.ContainerID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patiently)
	defer cancel()
	keep := map[string]bool{}
	for _, id := range but {
		answer, err := c.Direct().ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: string(id)}})
		if err != nil || len(answer.Containers) != 1 {
			t.Fatalf("%v, %v", answer, err)
		}
		keep[answer.Containers[0].PodSandboxId] = true
	}
	pods, err := c.CRI().ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if keep[p.Id] {
			continue
		}
		if _, err := c.CRI().StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.Id}); err != nil {
			t.Error(err)
		}
		if _, err := c.CRI().RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.Id}); err != nil {
			t.Error(err)
		}
	}
}
