package real_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// startHost starts an agent that hosts NRI plugins, in front of a runtime whose NRI is off.
func startHost(t testing.TB, c *real.Containerd, config string) (a *trimtab, socket string) {
	t.Helper()
	a = newTrimtab(t)
	a.host(c, config)
	a.run()
	a.attached()
	c.Through(a.proxy())
	answers(t, c)
	return a, a.nri()
}

func (a *trimtab) nri() string { return filepath.Join(a.dir, "nri.sock") }

func (a *trimtab) host(c *real.Containerd, config string) {
	a.t.Helper()
	a.configure(c, a.between(c)+fmt.Sprintf("nriHost: {enabled: true, socket: %s, pluginPath: %s/plugins, pluginConfigPath: %s/conf.d, pluginRegistrationTimeoutMilliseconds: 20000, pluginRequestTimeoutMilliseconds: 10000}\n", a.nri(), a.dir, a.dir)+config)
}

// nriSides are a runtime with its own NRI, and our host in front of one whose NRI is off. A plugin must
// have the same effect on both.
var nriSides = []struct {
	name  string
	start func(t *testing.T) (*real.Containerd, string)
}{
	{"containerd", func(t *testing.T) (*real.Containerd, string) {
		t.Helper()
		c := real.Start(t)
		return c, c.NRISocket()
	}},
	{"host", func(t *testing.T) (*real.Containerd, string) {
		t.Helper()
		c := real.Start(t, real.WithoutNRI())
		_, socket := startHost(t, c, "")
		return c, socket
	}},
}

// onBothSides runs a test on each of nriSides, with the name of the side. socket is where plugins connect.
func onBothSides(t *testing.T, test func(t *testing.T, side string, c *real.Containerd, socket string)) {
	t.Helper()
	for _, side := range nriSides {
		t.Run(side.name, func(t *testing.T) {
			t.Parallel()
			c, socket := side.start(t)
			test(t, side.name, c, socket)
		})
	}
}

// spec returns the runtime's OCI spec of a container.
func spec(t testing.TB, c *real.Containerd, id real.ContainerID) (s struct {
	Process struct {
		Args        []string
		Env         []string
		OOMScoreAdj *int
		Rlimits     []struct {
			Type       string
			Hard, Soft uint64
		}
	}
	Annotations map[string]string
	Mounts      []struct {
		Destination, Source string
		Options             []string
	}
	Linux struct {
		CgroupsPath string
		Sysctl      map[string]string
		Devices     []struct{ Path string }
		Resources   struct {
			CPU struct {
				Cpus, Mems            string
				Shares, Quota, Period int64
			}
			Memory struct{ Limit, Reservation *int64 }
			Pids   *struct{ Limit int64 }
		}
	}
}) {
	t.Helper()
	answer, err := c.CRI().ContainerStatus(context.Background(), &cri.ContainerStatusRequest{ContainerId: string(id), Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ RuntimeSpec json.RawMessage }
	if err := json.Unmarshal([]byte(answer.GetInfo()["info"]), &info); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(info.RuntimeSpec, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestHostedFields makes a plugin adjust every kind of field and checks the result in the container and in
// the kernel: with containerd's own NRI and with our host.
func TestHostedFields(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	onBothSides(t, func(t *testing.T, _ string, c *real.Containerd, socket string) {
		t.Helper()
		needV1(t, c)
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "mounted"), []byte("yes"), 0o600); err != nil {
			t.Fatal(err)
		}
		p := newPlugin(t)
		p.create = func(_ *api.PodSandbox, k *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			if k.GetName() != "adjusted" {
				return nil, nil, nil
			}
			a := &api.ContainerAdjustment{}
			a.AddEnv("ADDED", "by a plugin")
			a.AddAnnotation("plugin.example/set", "yes")
			a.RemoveAnnotation("plugin.example/unset")
			a.AddMount(&api.Mount{Destination: "/from-plugin", Type: "bind", Source: dir, Options: []string{"rbind", "ro"}})
			a.AddDevice(&api.LinuxDevice{Path: "/dev/plugin-null", Type: "c", Major: 1, Minor: 3})
			a.SetLinuxCPUSetCPUs("0")
			a.SetLinuxCPUShares(512)
			a.SetLinuxOomScoreAdj(ptr(321))
			a.SetLinuxPidLimits(77)
			a.SetLinuxMemoryLimit(96 << 20)
			a.AddRlimit("RLIMIT_CORE", 512, 256)
			return a, nil, nil
		}
		p.connect(socket, "fields", "10")
		pod := c.RunPod(plain("p", ""))
		id := c.RunContainer(pod, real.ContainerSpec{Name: "adjusted", Annotations: map[string]string{"plugin.example/unset": "x"}, Env: map[string]string{"KEPT": "1"}})
		same(t, "id in CreateContainer", p.seen("CreateContainer", "adjusted").GetId(), string(id))

		v := c.FirstView(id)
		same(t, "env", v.Env["ADDED"]+" "+v.Env["KEPT"], "by a plugin 1")
		same(t, "cpuset", c.KernelFile(id, "cpuset.cpus"), "0")
		same(t, "shares", c.KernelFile(id, "cpu.shares"), "512")
		same(t, "memory", c.KernelFile(id, "memory.limit_in_bytes"), fmt.Sprint(96<<20))
		same(t, "pids", c.KernelFile(id, "pids.max"), "77")
		root := fmt.Sprintf("/proc/%d/root", c.ContainerPID(id))
		text, err := os.ReadFile(filepath.Join(root, "from-plugin/mounted"))
		if err != nil || string(text) != "yes" {
			t.Errorf("mount: %q, %v", text, err)
		}
		if fi, err := os.Stat(filepath.Join(root, "dev/plugin-null")); err != nil || fi.Mode()&os.ModeCharDevice == 0 {
			t.Errorf("device: %v", err)
		}
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", c.ContainerPID(id)))
		if err != nil || !strings.Contains(strings.Join(strings.Fields(string(limits)), " "), "Max core file size 256 512") {
			t.Errorf("limits: %s, %v", limits, err)
		}
		score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", c.ContainerPID(id)))
		if err != nil || strings.TrimSpace(string(score)) != "321" {
			t.Errorf("oom score: %s, %v", score, err)
		}
		s := spec(t, c, id)
		if s.Annotations["plugin.example/set"] != "yes" {
			t.Errorf("annotations: %v", s.Annotations)
		}
		if _, has := s.Annotations["plugin.example/unset"]; has {
			t.Errorf("annotation is still there")
		}

		// An update by the kubelet keeps the values of plugins.
		c.UpdateResources(id, &cri.LinuxContainerResources{CpuShares: 600})
		same(t, "shares after an update", c.KernelFile(id, "cpu.shares"), "600")
		same(t, "pids after an update", c.KernelFile(id, "pids.max"), "77")
		same(t, "cpuset after an update", c.KernelFile(id, "cpuset.cpus"), "0")
		other := c.RunContainer(pod, real.ContainerSpec{Name: "plain"})
		if c.FirstView(other).Env["ADDED"] != "" {
			t.Error("another container has the variable")
		}
	})
}

func ptr[T any](v T) *T { return &v }

// listed reports whether the runtime lists a pod or a container, by its name.
func listed(t testing.TB, c real.Client, name string) (pod, ctr bool) {
	t.Helper()
	pods, err := c.ListPodSandbox(context.Background(), &cri.ListPodSandboxRequest{})
	if err != nil {
		t.Error(err)
	}
	for _, p := range pods.GetItems() {
		pod = pod || p.GetMetadata().GetName() == name
	}
	ctrs, err := c.ListContainers(context.Background(), &cri.ListContainersRequest{})
	if err != nil {
		t.Error(err)
	}
	for _, k := range ctrs.GetContainers() {
		ctr = ctr || k.GetMetadata().GetName() == name
	}
	return pod, ctr
}

// TestHostedLifecycle checks what critest expects of NRI: the order of events, the visible objects while
// plugins are asked, ids, and that StopPodSandbox comes once, after the containers and before the sandbox
// is removed.
func TestHostedLifecycle(t *testing.T) {
	t.Parallel()
	onBothSides(t, func(t *testing.T, _ string, c *real.Containerd, socket string) {
		t.Helper()
		p := newPlugin(t)
		p.during = func(event, pod, id string) {
			switch event {
			case "RunPodSandbox":
				if seen, _ := listed(t, c.CRI(), "life"); seen {
					t.Error("the sandbox is listed while plugins are asked about it")
				}
				if _, err := c.CRI().CreateContainer(context.Background(), &cri.CreateContainerRequest{
					PodSandboxId: pod, Config: &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "early"}}, SandboxConfig: &cri.PodSandboxConfig{},
				}); err == nil {
					t.Error("a container is created in a sandbox that plugins have not answered about")
				}
			case "CreateContainer":
				if _, seen := listed(t, c.CRI(), "main"); seen {
					t.Error("the container is listed while plugins are asked about it")
				}
			case "StopPodSandbox":
				s, err := c.CRI().PodSandboxStatus(context.Background(), &cri.PodSandboxStatusRequest{PodSandboxId: pod})
				if err != nil {
					t.Errorf("the sandbox cannot be reached while plugins are told that it stops: %v %v", s, err)
				}
			}
		}
		p.connect(socket, "life", "10")
		pod := c.RunPod(plain("life", ""))
		id := c.RunContainer(pod, real.ContainerSpec{Name: "main"})
		c.UpdateResources(id, &cri.LinuxContainerResources{CpuShares: 300})
		same(t, "id", p.seen("CreateContainer", "main").GetId(), string(id))
		same(t, "pod id", p.seenPod("RunPodSandbox", "life").GetId(), string(pod))
		if p.seenPod("RunPodSandbox", "life").GetPid() == 0 || p.seen("PostStartContainer", "main").GetPid() == 0 {
			t.Error("plugins are not told pids")
		}
		if k := p.seen("CreateContainer", "main"); len(k.GetMounts()) == 0 || len(k.GetArgs()) == 0 || k.GetLinux().GetCgroupsPath() == "" || len(k.GetLinux().GetNamespaces()) == 0 {
			t.Errorf("plugins are not told the container's spec: %v", k)
		}
		late := newPlugin(t).connect(socket, "late", "20")
		same(t, "synchronised", fmt.Sprint(has(late.start, string(pod)), has(late.start, string(id))), "true true")
		c.StopPod(pod) // with the container still running
		c.StopPod(pod)
		p.becomes(t, []string{
			"RunPodSandbox life", "CreateContainer main", "PostCreateContainer main", "StartContainer main", "PostStartContainer main",
			"UpdateContainer main", "PostUpdateContainer main", "StopContainer main", "StopPodSandbox life",
		}, "life", "main")
		c.RemovePod(pod)
		p.becomes(t, []string{
			"RunPodSandbox life", "CreateContainer main", "PostCreateContainer main", "StartContainer main", "PostStartContainer main",
			"UpdateContainer main", "PostUpdateContainer main", "StopContainer main", "StopPodSandbox life", "RemoveContainer main", "RemovePodSandbox life",
		}, "life", "main")

		// A container that ends by itself.
		pod = c.RunPod(plain("short", ""))
		c.RunContainer(pod, real.ContainerSpec{Name: "ends", Args: []string{"exit", "3"}})
		// containerd reports the end of a container from another goroutine than its start, so on a
		// loaded machine it may come first.
		begins := []string{"CreateContainer ends", "PostCreateContainer ends", "StartContainer ends"}
		p.becomesEither(t, append(begins[:3:3], "PostStartContainer ends", "StopContainer ends"), append(begins[:3:3], "StopContainer ends", "PostStartContainer ends"), "ends")
	})
}

func has(all []string, one string) bool {
	for _, a := range all {
		if a == one {
			return true
		}
	}
	return false
}

// TestHostedRefusals has a plugin that refuses: the refused call fails, leaves nothing behind, and can be
// repeated.
func TestHostedRefusals(t *testing.T) {
	t.Parallel()
	onBothSides(t, func(t *testing.T, side string, c *real.Containerd, socket string) {
		t.Helper()
		p := newPlugin(t)
		refused := ""
		p.fail = func(event, _ string) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if event == refused {
				return fmt.Errorf("not this time")
			}
			return nil
		}
		refuse := func(event string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			refused = event
		}
		p.connect(socket, "refuser", "10")
		fails := func(what string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "not this time") {
				t.Errorf("%s: %v", what, err)
			} else if side == "host" && !strings.Contains(err.Error(), "10-refuser") {
				t.Errorf("%s: the error does not name the plugin: %v", what, err)
			}
		}
		refuse("RunPodSandbox")
		pod := plain("no", "")
		pod.UID = "0a0a0a0a-0000-0000-0000-000000000001"
		_, err := c.TryRunPod(pod)
		fails("run pod", err)
		if side == "host" {
			if seen, _ := listed(t, c.Direct(), "no"); seen {
				t.Error("a refused pod is still there")
			}
		} else { // containerd's own NRI may leave the sandbox behind, with its name reserved
			pod.Name = "another"
		}
		refuse("")
		id := c.RunPod(pod)

		refuse("CreateContainer")
		_, err = c.TryCreateContainer(id, real.ContainerSpec{Name: "main"})
		fails("create container", err)
		if _, seen := listed(t, c.Direct(), "main"); seen {
			t.Error("a refused container is still there")
		}
		refuse("")
		ctr := c.CreateContainer(id, real.ContainerSpec{Name: "main"})

		refuse("StartContainer")
		fails("start container", c.TryStartContainer(ctr))
		refuse("")
		if side == "host" { // with containerd's own NRI such a container cannot be started again
			c.StartContainer(ctr)
		}
		for _, event := range []string{"PostCreateContainer", "StopContainer", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox"} { // the plugin is only notified
			refuse(event)
			pod := c.RunPod(plain("told-"+strings.ToLower(event), ""))
			c.RunContainer(pod, real.ContainerSpec{Name: "told"})
			c.RemovePod(pod)
		}
	})
}
