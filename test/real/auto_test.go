package real_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// nriGate is a relay in front of the NRI socket. It can be closed while the runtime runs.
type nriGate struct {
	t      *testing.T
	path   string
	behind string

	mu       sync.Mutex
	listener *net.UnixListener
	through  map[net.Conn]bool
	passing  sync.WaitGroup
}

func newNRIGate(t *testing.T, behind string) *nriGate {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ttdoor")
	if err != nil {
		t.Fatal(err)
	}
	d := &nriGate{t: t, path: filepath.Join(dir, "nri.sock"), behind: behind, through: map[net.Conn]bool{}}
	t.Cleanup(func() {
		d.shut(true)
		os.RemoveAll(dir)
	})
	d.open()
	return d
}

// open accepts plugins.
func (d *nriGate) open() {
	d.t.Helper()
	if err := os.RemoveAll(d.path); err != nil {
		d.t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.path})
	if err != nil {
		d.t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	d.mu.Lock()
	d.listener = l
	d.mu.Unlock()
	d.passing.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			d.passing.Go(func() { d.pass(in) })
		}
	})
}

// pass relays one connection until either side ends it.
func (d *nriGate) pass(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("unix", d.behind)
	if err != nil {
		return
	}
	defer out.Close()
	d.mu.Lock()
	if d.listener == nil {
		d.mu.Unlock()
		return
	}
	d.through[in], d.through[out] = true, true
	d.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			in.Close()
			out.Close()
		})
	}
	both.Wait()
	d.mu.Lock()
	delete(d.through, in)
	delete(d.through, out)
	d.mu.Unlock()
}

// shut ends every connection. The socket then refuses connections; if gone is set, its file is removed.
func (d *nriGate) shut(gone bool) {
	d.mu.Lock()
	l := d.listener
	d.listener = nil
	if l != nil {
		l.Close()
	}
	for c := range d.through {
		c.Close()
	}
	d.mu.Unlock()
	d.passing.Wait()
	if gone {
		os.RemoveAll(d.path)
	}
}

// awaitAttachment waits until an attachment decides and is connected.
func (a *trimtab) awaitAttachment(name string) {
	a.t.Helper()
	real.Eventually(a.t, 60*time.Second, func() error {
		var n struct {
			Attachments []struct{ Name, State, InForce, Error string }
		}
		if err := a.get("/v1/status", &n); err != nil {
			return err
		}
		for _, at := range n.Attachments {
			if at.Name == name && at.State == "connected" && at.InForce != "" {
				return nil
			}
		}
		return fmt.Errorf("%s is not in force: %+v", name, n.Attachments)
	})
}

// lasting returns a judge that reports only errors that last longer than most: bypass needs time to find new
// containers.
func lasting(most time.Duration, judge func(real.Snapshot) error) func(real.Snapshot) error {
	var since time.Time
	return func(s real.Snapshot) error {
		err := judge(s)
		if err == nil {
			since = time.Time{}
			return nil
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) < most {
			return nil
		}
		return fmt.Errorf("for %v: %w", time.Since(since).Round(time.Millisecond), err)
	}
}

// unmoved returns a judge that checks that earlier containers keep their CPUs.
func unmoved(ids map[string]real.ContainerID, was map[string]string) func(real.Snapshot) error {
	byID := map[string]string{}
	for name, id := range ids {
		byID[string(id)] = name
	}
	return func(s real.Snapshot) error {
		for dir, list := range s {
			if name, known := byID[baseOf(dir)]; known && list != was[name] {
				return fmt.Errorf("%s has CPUs %q and had %q", name, list, was[name])
			}
		}
		return nil
	}
}

// both combines two judges.
func both(a, b func(real.Snapshot) error) func(real.Snapshot) error {
	return func(s real.Snapshot) error {
		if err := a(s); err != nil {
			return err
		}
		return b(s)
	}
}

// TestAuto switches NRI off and on while pods are created and removed: the socket refuses, it is removed, or containerd
// restarts without NRI. Running containers never move, no container keeps an owned CPU, and in both states new pods get
// their values.
func TestAuto(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	d := newNRIGate(t, c.NRISocket())
	a := newTrimtab(t)
	config := strings.Replace(string(a.text(c, "")), c.NRISocket(), d.path, 1) +
		fmt.Sprintf("attach: auto\ncri: {endpoint: \"unix://%s\"}\nhooks: {preemption: {enabled: true}}\n", c.Socket())
	if err := os.WriteFile(a.config(), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	a.run()
	a.awaitAttachment("nri")

	ids := named{"owner": c.RunContainer(c.RunPod(owning("db", "1")), real.ContainerSpec{Name: "db", Resources: oneCPU})}
	for i, class := range []string{"", "LS", "BE"} {
		ids["stays "+class] = c.RunContainer(c.RunPod(plain(fmt.Sprint("stays-", i), class)), real.ContainerSpec{Name: "app"})
	}
	offline := plain("offline", "")
	offline.QoS, offline.Annotations = real.BestEffort, map[string]string{"volcano.sh/preemptable": "true"}
	offlinePod := c.RunPod(offline)
	ids["offline"] = c.RunContainer(offlinePod, real.ContainerSpec{Name: "app"})
	same(t, "cpu.idle of the preemptable pod", c.PodKernelFile(offlinePod, "cpu.idle"), "1")
	ids.become(t, c, "cpuset.cpus", map[string]string{"owner": "1", "stays ": "0", "stays LS": "0", "stays BE": "0", "offline": "0"})
	cpus := map[string]string{}
	for name, id := range ids {
		cpus[name] = c.KernelFile(id, "cpuset.effective_cpus")
	}
	before := fmt.Sprint(snapshot(c, ids))
	sampler := c.Sample(timed(both(unmoved(ids, cpus),
		lasting(10*time.Second, real.NoSharing(func(dir string) bool { return baseOf(dir) == string(ids["owner"]) })))))

	var over atomic.Bool
	var all errgroup
	var lived, failed atomic.Int64
	for i, class := range []string{"LS", "BE", ""} {
		all.run(func() error { return churnUntil(c, fmt.Sprint("churn-", i), class, &over, &lived, &failed) })
	}
	n := rounds(t, 3)
	slowest := map[string]time.Duration{}
	for i := range n {
		way, off, on := ways(c, d, i)
		for _, step := range []struct {
			do    func()
			keeps string
		}{{off, "bypass"}, {on, "nri"}} {
			start := time.Now()
			step.do()
			a.awaitAttachment(step.keeps)
			slowest[step.keeps] = max(slowest[step.keeps], time.Since(start))
			what := fmt.Sprintf("round %d, %s, with %s in force", i, way, step.keeps)
			checkAllKinds(t, c, fmt.Sprint(step.keeps, "-", i), step.keeps == "nri")
			same(t, "what containers have in "+what, fmt.Sprint(snapshot(c, ids)), before)
			same(t, "cpu.idle in "+what, c.PodKernelFile(offlinePod, "cpu.idle"), "1")
		}
		if t.Failed() {
			break
		}
		if i%5 == 4 {
			t.Logf("%d of %d rounds", i+1, n)
		}
	}
	over.Store(true)
	if err := all.wait(); err != nil {
		t.Error(err)
	}
	found := sampler.Stop()
	t.Logf("%d rounds: slowest change to bypass %v, to nri %v; %d pods ran, %d failed while the runtime was stopped; %v",
		n, slowest["bypass"].Round(time.Millisecond), slowest["nri"].Round(time.Millisecond), lived.Load(), failed.Load(), found)
	if found.Violations > 0 || found.Samples < 100 || lived.Load() == 0 {
		t.Errorf("%v\n%s", found, strings.Join(found.First, "\n"))
	}
	decidedOnce(t, a)
	if s, err := a.status(); err != nil || len(s.CPUs.Grants) != 1 {
		t.Errorf("grants at the end: %+v, %v", s.CPUs.Grants, err)
	}
}

// ways returns, in turn, three ways to switch NRI off and on.
func ways(c *real.Containerd, d *nriGate, i int) (name string, off, on func()) {
	switch i % 5 {
	case 1, 3:
		return "the socket is gone", func() { d.shut(true) }, d.open
	case 2:
		// Like containerd's own socket, the gate's socket refuses connections until it is made again.
		return "containerd is restarted without NRI", func() { d.shut(false); c.RestartWithNRI(false) }, func() { c.RestartWithNRI(true); d.open() }
	}
	return "the socket refuses", func() { d.shut(false) }, d.open
}

// churnUntil runs and removes pods until over is set. Like a kubelet it retries while the runtime is stopped.
func churnUntil(c *real.Containerd, name, class string, over *atomic.Bool, lived, failed *atomic.Int64) error {
	for i := 0; !over.Load(); i++ {
		pod, ids, err := podOf(c, plain(fmt.Sprintf("%s-%d", name, i), class))
		if err == nil {
			err = removeLikeKubelet(c, pod, ids)
		}
		if err != nil {
			failed.Add(1)
			time.Sleep(100 * time.Millisecond) // a kubelet waits longer
			continue
		}
		lived.Add(1)
	}
	return nil
}

// podOf runs a pod of two containers, which are both created before the first starts.
func podOf(c *real.Containerd, spec real.PodSpec) (pod real.PodID, ids []real.ContainerID, err error) {
	if pod, err = c.TryRunPod(spec); err != nil {
		return pod, nil, err
	}
	for i := range 2 {
		id, err := c.TryCreateContainer(pod, real.ContainerSpec{Name: fmt.Sprint("c", i)})
		if err != nil {
			return pod, ids, err
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		if err := c.TryStartContainer(id); err != nil {
			return pod, ids, err
		}
	}
	return pod, ids, nil
}

// removeLikeKubelet removes the containers of a pod before the pod, like a kubelet. When containerd 2.4 removes a pod
// with containers, it takes a lock twice; a plugin that registers in between causes a deadlock.
func removeLikeKubelet(c *real.Containerd, pod real.PodID, ids []real.ContainerID) error {
	for _, id := range ids {
		if err := c.TryStopContainer(id); err != nil {
			return err
		}
		if err := c.TryRemoveContainer(id); err != nil {
			return err
		}
	}
	return c.TryRemovePod(pod)
}

// checkAllKinds runs a pod of each kind and waits until its values are in force; through NRI from its first
// instruction.
func checkAllKinds(t *testing.T, c *real.Containerd, name string, first bool) {
	t.Helper()
	batch := c.RunPod(batchPod("batch-" + name))
	batchID := c.RunContainer(batch, real.ContainerSpec{Name: "batch-" + name})
	want := map[string]string{"cpuset.cpus": "0", "cpu.shares": "512", "cpu.cfs_quota_us": "100000", "memory.limit_in_bytes": "134217728"}
	if first {
		for file, value := range want {
			same(t, file+" at the first instruction of batch-"+name, c.FirstView(batchID).Cgroup[file], value)
		}
	}
	inForce(t, c, batchID, want)
	spec := plain("offline-"+name, "")
	spec.QoS, spec.Labels = real.BestEffort, map[string]string{"volcano.sh/preemptable": "true"}
	pod := c.RunPod(spec)
	id := c.RunContainer(pod, real.ContainerSpec{Name: "app", Resources: &cri.LinuxContainerResources{CpuShares: 2}})
	inForce(t, c, id, map[string]string{"cpuset.cpus": "0"})
	awaitIdle(t, c, pod)
	if err := errors.Join(removeLikeKubelet(c, batch, []real.ContainerID{batchID}), removeLikeKubelet(c, pod, []real.ContainerID{id})); err != nil {
		t.Fatal(err)
	}
}

// awaitIdle waits until a pod has cpu.idle.
func awaitIdle(t *testing.T, c *real.Containerd, pod real.PodID) {
	t.Helper()
	real.Eventually(t, patiently, func() error {
		if idle := c.PodKernelFile(pod, "cpu.idle"); idle != "1" {
			return fmt.Errorf("cpu.idle of the preemptable pod is %s", idle)
		}
		return nil
	})
}

// decidedOnce checks in the agent's events that no creation was decided twice. If the runtime got the answer of a
// creation over NRI, bypass finds the container with its record.
func decidedOnce(t *testing.T, a *trimtab) {
	t.Helper()
	out, err := a.cli("events", "--follow=false", "-o", "json")
	if err != nil {
		t.Errorf("%v: %s", err, out)
		return
	}
	by := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var e struct {
			Kind, From, Pod, Container string
			Again                      bool
		}
		if err := d.Decode(&e); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
		if e.Kind != "CreateContainer" || e.Again {
			continue
		}
		who := e.Pod + "/" + e.Container
		if by[who] != "" {
			t.Errorf("%s was decided for %s and again for %s", who, by[who], e.From)
		}
		by[who] = e.From
	}
	if len(by) == 0 {
		t.Error("the agent's events have no creation")
	}
}
