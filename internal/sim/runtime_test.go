package sim

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

func TestContainerLifecycle(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		for _, driver := range []Driver{Cgroupfs, Systemd} {
			t.Run(version.String()+" "+string(driver), func(t *testing.T) {
				r, _ := newRuntime(t, version, driver)
				p := &plugin{}
				connect(t, r.opts.Socket, p)
				run(t, r, pod("web", "Burstable"), limited("app"))
				ref := scenario.Ref("default/web/app")
				got, err := r.State(ref)
				if err != nil {
					t.Fatal(err)
				}
				if !got.HasShares(1024) || got.Quota != 50000 || got.Memory != 1<<30 || got.CPUs != "0-7" || got.Env["A"] != "1" {
					t.Errorf("effective: %+v", got)
				}
				first, ok := r.FirstInstruction(ref)
				if !ok || cmp.Diff(first.State, got) != "" {
					t.Errorf("first instruction saw %+v", first)
				}
				if s, err := r.PodState("default/web"); err != nil || s.Quota != 50000 || !s.HasShares(1024) || s.Memory != 1<<30 {
					t.Errorf("pod: %+v, %v", s, err)
				}
				if err := r.RemovePodSandbox(t.Context(), "default/web"); err != nil {
					t.Fatal(err)
				}
				want := []string{
					"Synchronize", "RunPodSandbox web", "CreateContainer app", "StartContainer app",
					"StopContainer app", "StopPodSandbox web", "RemoveContainer app", "RemovePodSandbox web",
				}
				if d := cmp.Diff(want, p.seen()); d != "" {
					t.Error(d)
				}
			})
		}
	}
}

func TestAdjustment(t *testing.T) {
	r, _ := newRuntime(t, cgroup.V2, Cgroupfs)
	p := &plugin{create: func(_ *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		a := &api.ContainerAdjustment{}
		a.AddEnv("B", "2")
		a.RemoveEnv("A")
		a.AddEnv("A", "new")
		a.AddAnnotation("stamp", "record")
		a.AddMount(&api.Mount{Destination: "/x", Source: "/y", Type: "bind"})
		a.SetLinuxCPUSetCPUs("2-3")
		a.SetLinuxCPUQuota(-1)
		a.SetLinuxMemoryLimit(2 << 30)
		a.AddRlimit("RLIMIT_NOFILE", 10, 5)
		return a, nil, nil
	}}
	connect(t, r.opts.Socket, p)
	run(t, r, pod("web", "Burstable"), limited("app"))
	first, _ := r.FirstInstruction("default/web/app")
	if first.CPUs != "2-3" || first.Quota != effective.Unlimited || first.Memory != 2<<30 {
		t.Errorf("cgroup: %+v", first.State)
	}
	if first.Env["A"] != "new" || first.Env["B"] != "2" || first.Mounts["/x"] != "/y" {
		t.Errorf("spec: %+v", first.State)
	}
	spec, _ := r.Spec("default/web/app")
	if spec.Annotations["stamp"] != "record" || len(spec.Process.Rlimits) != 1 {
		t.Errorf("annotations %v, rlimits %v", spec.Annotations, spec.Process.Rlimits)
	}
}

func TestUpdates(t *testing.T) {
	r, k := newRuntime(t, cgroup.V2, Cgroupfs)
	var mu sync.Mutex
	ids := map[string]string{}
	narrow := func(name, cpus string) []*api.ContainerUpdate {
		mu.Lock()
		defer mu.Unlock()
		u := &api.ContainerUpdate{}
		u.SetContainerId(ids[name])
		u.SetLinuxCPUSetCPUs(cpus)
		return []*api.ContainerUpdate{u}
	}
	p := &plugin{
		create: func(_ *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			mu.Lock()
			ids[c.Name] = c.Id
			mu.Unlock()
			if c.Name == "second" {
				return nil, narrow("first", "0-3"), nil
			}
			return nil, nil, nil
		},
		update: func(c *api.Container, res *api.LinuxResources) []*api.ContainerUpdate {
			if res.GetCpu().GetCpus() == "" {
				return nil
			}
			return narrow(c.Name, "1")
		},
		stop: func(*api.Container) []*api.ContainerUpdate { return narrow("first", "0-7") },
	}
	s := connect(t, r.opts.Socket, p)
	run(t, r, pod("a", "Burstable"), limited("first"))
	run(t, r, pod("b", "Burstable"), limited("second"))
	first := scenario.Ref("default/a/first")
	expect := func(what, cpus string, quota int64) {
		t.Helper()
		got, err := r.State(first)
		if err != nil || got.CPUs != cpus || got.Quota != quota {
			t.Errorf("%s: %+v, %v; want CPUs %s, quota %d", what, got, err, cpus, quota)
		}
	}
	expect("shrunk by another's creation", "0-3", 50000)

	// The test changes the kernel without the runtime. As in containerd, any update writes the stored cpuset again.
	if err := k.WriteFile(r.containers[first].dir+"/cpuset.cpus", []byte("5")); err != nil {
		t.Fatal(err)
	}
	if err := r.UpdateContainer(t.Context(), first, scenario.Resources{Quota: new(int64(70000))}); err != nil {
		t.Fatal(err)
	}
	expect("quota request, stored cpuset re-applied", "0-3", 70000)
	if err := r.UpdateContainer(t.Context(), first, scenario.Resources{CPUs: "4-7"}); err != nil {
		t.Fatal(err)
	}
	expect("request overruled", "1", 70000)
	if err := r.StopContainer(t.Context(), "default/b/second"); err != nil {
		t.Fatal(err)
	}
	expect("restored at stop", "0-7", 70000)
	failed, err := s.UpdateContainers(append(narrow("first", "2"), narrow("first", "77")...))
	if err != nil || len(failed) != 1 {
		t.Errorf("unsolicited: %v failed, %v", failed, err)
	}
	expect("unsolicited", "2", 70000)
}

func TestRefusals(t *testing.T) {
	r, k := newRuntime(t, cgroup.V2, Cgroupfs)
	p := &plugin{
		create: func(_ *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			a := &api.ContainerAdjustment{}
			switch c.Name {
			case "no":
				return nil, nil, errors.New("plugin says no")
			case "classes":
				a.SetLinuxRDTClass("gold")
			case "offline":
				a.SetLinuxCPUSetCPUs("77")
			}
			return a, nil, nil
		},
		start: func(c *api.Container) error {
			if c.Name == "late" {
				return errors.New("plugin says no at start")
			}
			return nil
		},
		runPod: func(pod *api.PodSandbox) error {
			if pod.Name == "bad" {
				return errors.New("plugin says no to the pod")
			}
			return nil
		},
	}
	connect(t, r.opts.Socket, p)
	run(t, r, pod("a", "Burstable"))
	ctx := t.Context()
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"create":      {r.CreateContainer(ctx, "default/a", scenario.Container{Name: "no"}), "plugin says no"},
		"no pod":      {r.CreateContainer(ctx, "default/b", scenario.Container{Name: "x"}), "is not running"},
		"offline CPU": {errors.Join(r.CreateContainer(ctx, "default/a", scenario.Container{Name: "offline"}), r.StartContainer(ctx, "default/a/offline")), "numerical result out of range"},
		"start":       {errors.Join(r.CreateContainer(ctx, "default/a", scenario.Container{Name: "late"}), r.StartContainer(ctx, "default/a/late")), "no at start"},
		"pod":         {r.RunPodSandbox(ctx, pod("bad", "BestEffort"), SumResources("BestEffort", nil)), "no to the pod"},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: %v, want it to contain %q", name, tt.err, tt.want)
		}
	}
	if dirs, err := k.List(r.pods["default/a"].dir); err != nil || len(dirs) != 0 {
		t.Errorf("cgroups left of refused containers: %v, %v", dirs, err)
	}
	if dirs, err := k.List("kubepods/besteffort"); err != nil || len(dirs) != 0 {
		t.Errorf("cgroups left of a refused pod: %v, %v", dirs, err)
	}
	if got := p.seen(); got[len(got)-1] == "" {
		t.Error("no events")
	}
}

func TestRestart(t *testing.T) {
	r, _ := newRuntime(t, cgroup.V2, Systemd)
	closed := make(chan struct{})
	p := &plugin{synced: make(chan struct{}, 4), create: func(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		a := &api.ContainerAdjustment{}
		a.AddAnnotation("stamp", "record")
		return a, nil, nil
	}}
	s, err := stub.New(p, stub.WithPluginName("test"), stub.WithPluginIdx("10"), stub.WithSocketPath(r.opts.Socket),
		stub.WithOnClose(func() { close(closed) }))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-p.synced
	run(t, r, pod("web", "Guaranteed"), limited("app"))
	before, _ := r.State("default/web/app")
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("the plugin's connection survived the restart")
	}
	s.Stop()
	s.Wait()
	after, _ := r.State("default/web/app")
	if d := cmp.Diff(before, after); d != "" {
		t.Error(d)
	}
	again := &plugin{}
	connect(t, r.opts.Socket, again)
	again.mu.Lock()
	defer again.mu.Unlock()
	if len(again.pods) != 1 || len(again.containers) != 1 {
		t.Fatalf("synchronised with %d pods, %d containers", len(again.pods), len(again.containers))
	}
	c := again.containers[0]
	if c.Annotations["stamp"] != "record" || c.State != api.ContainerState_CONTAINER_RUNNING || len(c.Id) != 64 {
		t.Errorf("records after the restart: %v %v %v", c.Annotations, c.State, c.Id)
	}
	if got := again.pods[0].Linux.CgroupParent; !strings.HasPrefix(got, "/kubepods.slice/kubepods-pod") {
		t.Errorf("cgroup parent %q", got)
	}
}

func TestStoppedRuntime(t *testing.T) {
	r, _ := newRuntime(t, cgroup.V2, Cgroupfs)
	r.Stop()
	if err := r.RunPodSandbox(t.Context(), pod("a", "BestEffort"), scenario.Resources{}); !errors.Is(err, errNotRunning) {
		t.Error(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.Start(t.Context()); err == nil {
		t.Error("started twice")
	}
	if _, err := listen(r.opts.Socket, "x"); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("took a socket in use: %v", err)
	}
}
