package real_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// hold listens on the proxy's socket like systemd, for all agents of the test.
func (a *trimtab) hold() *os.File {
	a.t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: a.proxy(), Net: "unix"})
	if err != nil {
		a.t.Fatal(err)
	}
	file, err := l.File()
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _, _ = file.Close(), l.Close() })
	return file
}

// runOn starts the agent with an inherited socket.
func (a *trimtab) runOn(socket *os.File) {
	a.t.Helper()
	a.cmd = exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, a.path, "agent", "--config", a.config())
	a.cmd.Env = append(os.Environ(), "LISTEN_FDS=1")
	a.cmd.ExtraFiles = []*os.File{socket}
	a.cmd.Stdout, a.cmd.Stderr = a.out, a.out
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
}

// end stops the agent with SIGTERM and waits for its end, as systemd does before it starts another.
func (a *trimtab) end() {
	a.t.Helper()
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	if err := a.cmd.Wait(); err != nil {
		a.t.Errorf("the agent's end: %v", err)
	}
	a.cmd = nil
}

// TestProxyUpgrade replaces the agent repeatedly while pods are created and removed, on a socket that systemd would
// hold. No call fails or is repeated, and each agent has the same containers as the one before.
func TestProxyUpgrade(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t, real.WithoutNRI())
	needV1(t, c)
	a := newTrimtab(t)
	a.configure(c, a.between(c))
	socket := a.hold()
	a.runOn(socket)
	c.Through(a.proxy())
	owner := c.RunContainer(c.RunPod(owning("db", "1")), real.ContainerSpec{Name: "db", Resources: oneCPU})
	resized := c.RunContainer(c.RunPod(plain("resized", "LS")), real.ContainerSpec{Name: "app"})
	sampler := c.Sample(real.NoSharing(func(dir string) bool { return baseOf(dir) == string(owner) }))

	l := load{c: c, stop: make(chan struct{})}
	var all errgroup
	for _, class := range []string{"LS", "BE", ""} {
		all.run(func() error { return l.churn(class) })
	}
	for i := range rounds(t, 6) {
		l.wait(t, int64(5+i%7))
		shares := int64(100 + i)
		c.UpdateResources(resized, &cri.LinuxContainerResources{CpuShares: shares, CpusetCpus: "0-1"})
		a.end()
		a.runOn(socket)
		a.attached()
		same(t, "owner", c.KernelFile(owner, "cpuset.cpus"), "1")
		same(t, "resized", c.KernelFile(resized, "cpuset.cpus")+" "+c.KernelFile(resized, "cpu.shares"), fmt.Sprint("0 ", shares))
	}
	close(l.stop)
	if err := all.wait(); err != nil {
		t.Error(err)
	}
	found := sampler.Stop()
	t.Log(found)
	if found.Violations > 0 || found.Samples == 0 {
		t.Errorf("CPUs were shared: %v\n%s", found, strings.Join(found.First, "\n"))
	}
	t.Logf("%d pods ran in %d calls", l.pods.Load(), l.calls.Load())
	if l.again.Load() > 0 || l.anew.Load() > 0 || l.pods.Load() == 0 {
		t.Errorf("of %d calls %d were repeated, %d containers were created again, %d pods ran", l.calls.Load(), l.again.Load(), l.anew.Load(), l.pods.Load())
	}
	a.knowsOnly(1, owner, resized)
}

// TestUnits checks the units of deploy/systemd with systemd-analyze.
func TestUnits(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("SKIPPED: no systemd-analyze on this host")
	}
	dir := t.TempDir()
	for _, unit := range []string{"trimtab.service", "trimtab.socket"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "systemd", unit))
		if err != nil {
			t.Fatal(err)
		}
		// The program is not installed on the test machine.
		text = []byte(strings.ReplaceAll(string(text), "/usr/local/bin/trimtab", "/bin/true"))
		if err := os.WriteFile(filepath.Join(dir, unit), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program, "verify", "--man=no", "--recursive-errors=no", filepath.Join(dir, "trimtab.service"), filepath.Join(dir, "trimtab.socket"))
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), dir) {
		t.Errorf("%v\n%s", err, out)
	}
}
