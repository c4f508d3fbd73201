package real_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	nri "github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// TestContainerd17 attaches to the oldest containerd with NRI. Values are in force at the first instruction, updates
// and restarts move nothing, and the agent subscribes to no event that this runtime does not know.
func TestContainerd17(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if !real.Privately(t, builtBinary+"="+program) {
		return
	}
	c := real.Start(t, real.WithRelease(real.V17))
	needV1(t, c)
	a := startTrimtab(t, c, `hooks: {oomScore: {enabled: true}}
authorization: [{kinds: [oom-score], namespaces: [shop], decision: allow}]`)
	crowd := runOtherContainers(t, c, a)
	servicePod := c.RunPod(plain("late", "LS"))
	waiting := c.CreateContainer(servicePod, real.ContainerSpec{Name: "waiting", Resources: pinned("0-1")})
	ownerPod := c.RunPod(owning("db", "1"))
	owner := c.RunContainer(ownerPod, real.ContainerSpec{Name: "db", Resources: oneCPU})
	checkOwner(t, c, ownerPod, owner)
	crowd.on(t, c, "beside an owner", "cpuset.cpus", "0")
	c.StartContainer(waiting)
	crowd["waiting"] = waiting
	same(t, "affinity at start of a container created before", c.FirstView(waiting).Affinity, "0")

	checkKubeletUpdates(t, c, owner, crowd)
	all := named{"owner": owner, "service": crowd["service"], "batch": crowd["batch"], "silent": crowd["silent"], "waiting": waiting}
	before := fmt.Sprint(snapshot(c, all))
	for name, restart := range map[string]func(){"containerd": c.Restart, "containerd, killed": c.Kill9AndRestart, "agent": func() { a.kill(); a.run() }} {
		restart()
		a.attached()
		same(t, "what containers have after a restart of "+name, fmt.Sprint(snapshot(c, all)), before)
	}
	c.RemovePod(ownerPod)
	crowd.become(t, c, "cpuset.cpus", map[string]string{"service": "0-1", "silent": "0-1", "waiting": "0-1"})
}

// runOtherContainers runs one container of each kind that owns nothing, and checks its values at its first instruction.
func runOtherContainers(t *testing.T, c *real.Containerd, a *trimtab) named {
	t.Helper()
	if n, err := a.status(); err != nil || len(n.Attachments) != 1 || !strings.HasPrefix(n.Attachments[0].Runtime, "containerd v1.7.") {
		t.Fatalf("attached to %+v, %v", n.Attachments, err)
	}
	spec := plain("batch", "BE")
	spec.QoS = real.BestEffort // the class of pods with batch resources
	spec.Annotations = map[string]string{
		extended: `{"containers":{"batch":{"requests":{"kubernetes.io/batch-cpu":"500"},
			"limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"64Mi"}}}}`,
		"koordinator.sh/oom-score-adj": "700",
	}
	batch := c.RunContainer(c.RunPod(spec), real.ContainerSpec{Name: "batch", Resources: &cri.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100_000}})
	for file, want := range (batchValues{512, 100_000, 64 << 20}).files() {
		same(t, file+" of batch at start", c.FirstView(batch).Cgroup[file], want)
	}
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", c.ContainerPID(batch)))
	same(t, fmt.Sprintf("OOM score of batch (%v)", err), strings.TrimSpace(string(score)), "700")
	return named{
		"batch":   batch,
		"service": c.RunContainer(c.RunPod(plain("service", "LS")), real.ContainerSpec{Name: "service"}),
		"silent":  c.RunContainer(c.RunPod(plain("silent", "")), real.ContainerSpec{Name: "silent", Resources: pinned("0-1")}),
	}
}

// checkKubeletUpdates sends the updates that a kubelet may send while CPU 1 is owned.
func checkKubeletUpdates(t *testing.T, c *real.Containerd, owner real.ContainerID, crowd named) {
	t.Helper()
	for _, r := range []*cri.LinuxContainerResources{{CpusetCpus: "0-1"}, {CpuShares: 1300, CpuQuota: 150_000, CpuPeriod: 100_000}} {
		c.UpdateResources(owner, r)
		same(t, "owner's CPUs after an update", c.KernelFile(owner, "cpuset.cpus"), "1")
		same(t, "owner's quota after an update", c.KernelFile(owner, "cpu.cfs_quota_us"), "-1")
		for _, id := range crowd {
			c.UpdateResources(id, r)
		}
		crowd.on(t, c, "after an update", "cpuset.cpus", "0")
	}
	same(t, "owner's shares, which the kubelet sets", c.KernelFile(owner, "cpu.shares"), "1300")
	same(t, "batch's shares, which the kubelet does not set", c.KernelFile(crowd["batch"], "cpu.shares"), "512")
	same(t, "quota of a pod without requests, which the kubelet sets", c.KernelFile(crowd["silent"], "cpu.cfs_quota_us"), "150000")
}

// TestUnknownEvents shows a fault of containerd 1.7 that the agent avoids. It drops a plugin, without an error, that
// subscribes to an event that it does not know, such as the update of a pod.
func TestUnknownEvents(t *testing.T) {
	t.Parallel()
	if !real.Privately(t) {
		return
	}
	c := real.Start(t, real.WithRelease(real.V17))
	for name, keeps := range map[string]bool{"greedy": false, "modest": true} {
		p := &subscriber{synced: make(chan struct{}, 1)}
		p.events.Set(nri.Event_CREATE_CONTAINER)
		if !keeps {
			p.events.Set(nri.Event_UPDATE_POD_SANDBOX)
		}
		closed := make(chan struct{})
		s, err := stub.New(p, stub.WithPluginName(name), stub.WithPluginIdx("20"), stub.WithSocketPath(c.NRISocket()),
			stub.WithOnClose(func() { close(closed) }))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil && (keeps || !strings.Contains(err.Error(), "closed")) {
			t.Fatalf("%s: %v", name, err) // the runtime may drop it before the registration returns
		}
		select {
		case <-p.synced:
			same(t, name+" is kept", true, keeps)
		case <-closed:
			same(t, name+" is kept", false, keeps)
		case <-time.After(soon):
			t.Errorf("%s: neither kept nor dropped", name)
		}
		s.Stop()
	}
}

// subscriber subscribes to events and ignores them.
type subscriber struct {
	events nri.EventMask
	synced chan struct{}
}

var (
	_ stub.ConfigureInterface       = (*subscriber)(nil)
	_ stub.SynchronizeInterface     = (*subscriber)(nil)
	_ stub.CreateContainerInterface = (*subscriber)(nil)
	_ stub.UpdatePodInterface       = (*subscriber)(nil)
)

func (s *subscriber) Configure(context.Context, string, string, string) (nri.EventMask, error) {
	return s.events, nil
}

func (s *subscriber) Synchronize(context.Context, []*nri.PodSandbox, []*nri.Container) ([]*nri.ContainerUpdate, error) {
	s.synced <- struct{}{}
	return nil, nil
}

func (s *subscriber) CreateContainer(context.Context, *nri.PodSandbox, *nri.Container) (*nri.ContainerAdjustment, []*nri.ContainerUpdate, error) {
	return nil, nil, nil
}

func (s *subscriber) UpdatePodSandbox(context.Context, *nri.PodSandbox, *nri.LinuxResources, *nri.LinuxResources) error {
	return nil
}
