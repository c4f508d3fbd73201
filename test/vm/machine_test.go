package vm_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/vm"
)

func TestMain(m *testing.M) { vm.Main(m) }

// TestBare boots the plain guests and uses every operation of the channel.
func TestBare(t *testing.T) {
	for name, g := range map[string]vm.Guest{"6.1 v2": {}, "6.1 v1": {CgroupV1: true}, "6.12 v2": {Kernel: "6.12"}} {
		t.Run(name, func(t *testing.T) {
			m := vm.Start(t, g)
			if got := m.Run("uname", "-r"); !strings.HasPrefix(got, m.Guest.Kernel+".") {
				t.Errorf("kernel is %s, want series %s", got, m.Guest.Kernel)
			}
			dir := "/sys/fs/cgroup"
			if g.CgroupV1 {
				dir += "/cpuset"
			}
			m.Run("mkdir", dir+"/a")
			m.Sh("echo 1-2 > " + dir + "/a/cpuset.cpus")
			if got := m.Read(dir + "/a/cpuset.cpus"); got != "1-2" {
				t.Errorf("cpuset.cpus is %q", got)
			}
			words(t, m)
		})
	}
}

func words(t *testing.T, m *vm.Machine) {
	t.Helper()
	ctx := context.Background()
	r, err := m.Exec(ctx, "/bin/sh", "-c", "echo out; echo err >&2; exit 3")
	if err != nil || r.Code != 3 || r.Stdout != "out\n" || r.Stderr != "err\n" {
		t.Errorf("exec: %+v, %v", r, err)
	}
	r, err = m.Do(ctx, vm.Command{Argv: []string{"sleep", "60"}, Timeout: 100 * time.Millisecond})
	if err != nil || r.Code != 124 {
		t.Errorf("a command that takes too long: %+v, %v", r, err)
	}
	if r, err = m.Exec(ctx, "/no/such"); err != nil || r.Code != 126 || r.Err == "" {
		t.Errorf("a program that is not there: %+v, %v", r, err)
	}
	m.Put("/tmp/deep/file", 0o755, []byte("#!/bin/sh\necho said $1\n"))
	if got := m.Run("/tmp/deep/file", "so"); got != "said so" {
		t.Errorf("the file that was put says %q", got)
	}
	if _, err := m.Get("/no/such"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("get of a missing file: %v", err)
	}
	m.Spawn("listener", "nc", "-l", "-p", "99", "-e", "/bin/echo", "hello")
	conn, err := m.Dial(ctx, "tcp", "127.0.0.1:99")
	for range 50 {
		if err == nil {
			break
		}
		conn, err = m.Dial(ctx, "tcp", "127.0.0.1:99")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b := make([]byte, 6)
	if n, err := conn.Read(b); string(b[:n]) != "hello\n" {
		t.Errorf("through a socket came %q, %v", b[:n], err)
	}
	if got := m.Run("/payload/trimtab", "version"); !strings.Contains(got, "trimtab") {
		t.Errorf("the agent's version is %q", got)
	}
	if skew := time.Since(clock(t, m)); skew.Abs() > 30*time.Second {
		t.Errorf("the guest's clock is off by %v", skew)
	}
}

func clock(t *testing.T, m *vm.Machine) time.Time {
	t.Helper()
	now, err := time.Parse(time.RFC3339, m.Run("date", "-u", "+%Y-%m-%dT%H:%M:%SZ"))
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// TestContainerd runs a container on a fresh copy of a machine with a running containerd.
func TestContainerd(t *testing.T) {
	m := vm.Start(t, vm.Guest{Stage: vm.Containerd})
	c := m.CRI(vm.CRISocket)
	pod := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "a", Namespace: "default", Uid: "1"}, LogDirectory: "/var/log/pods/a",
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: "/pods/a", SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE},
		}},
	}
	begun := time.Now()
	p, err := c.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: pod})
	if err != nil {
		t.Fatal(err)
	}
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: vm.Image("probe")}, LogPath: "c.log",
		Linux: &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{CpusetCpus: "2"}},
	}
	created, err := c.CreateContainer(t.Context(), &cri.CreateContainerRequest{PodSandboxId: p.PodSandboxId, Config: config, SandboxConfig: pod})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
		t.Fatal(err)
	}
	t.Logf("a pod with a container after %v", time.Since(begun))
	if got := m.Read("/sys/fs/cgroup/pods/a/" + created.ContainerId + "/cpuset.cpus"); got != "2" {
		t.Errorf("cpuset.cpus is %q", got)
	}
	m.StopContainerd()
	m.StartContainerd()
	if s, err := c.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: created.ContainerId}); err != nil || s.Status.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after a restart of containerd: %v, %v", s, err)
	}
}

// TestSystemd boots the guest with systemd, which must have no failed unit.
func TestSystemd(t *testing.T) {
	m := vm.Start(t, vm.Guest{Systemd: true, Stage: vm.Containerd})
	if got := m.Run("cat", "/proc/1/comm"); got != "systemd" {
		t.Errorf("the first process is %s", got)
	}
	if got := m.Run("systemctl", "list-units", "--failed", "--plain", "--no-legend"); got != "" {
		t.Errorf("failed units:\n%s", got)
	}
}
