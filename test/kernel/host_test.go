package kernel

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/test/kernel/script"
)

// taskProgram builds the guest's program, which can also run as a task of the script. The test binary cannot: with the
// race detector a process uses many times the memory that the script expects.
func taskProgram(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "task")
	if b, err := exec.CommandContext(t.Context(), "go", "build", "-o", out, "./guest").CombinedOutput(); err != nil {
		t.Fatalf("build the task: %v\n%s", err, b)
	}
	return out
}

// TestHost runs the script on this host's kernel, in a cgroup of the test, without the cases that need a machine of
// their own. It compares the fake with the answers, also for kernels without a recording.
func TestHost(t *testing.T) {
	const mount = "/sys/fs/cgroup"
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: making cgroups needs root")
	}
	tree, err := cgroup.OpenRoot(mount)
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	t.Cleanup(func() { tree.Close() })
	if v, err := cgroup.Detect(tree); err != nil || v != cgroup.V1 {
		t.Skipf("SKIPPED: on a cgroup v2 host, processes are in the cgroup that the test needs empty (%v, %v)", v, err)
	}
	host := &Real{Real: tree, Dir: mount, TaskCommand: []string{taskProgram(t), "-task"}}
	base := fmt.Sprintf("trimtab-kscript-%d-%s", os.Getpid(), strings.ToLower(rand.Text()[:8]))
	if err := host.Mkdir(base); err != nil {
		t.Skipf("SKIPPED: cannot make a cgroup: %v", err)
	}
	t.Cleanup(func() {
		if err := host.Rmdir(base); err != nil {
			t.Errorf("left behind: %v", err)
		}
	})
	rec := script.Recording{
		Kernel: file(t, "/proc/sys/kernel/osrelease"), Version: "v1", Modules: host.modules(base),
		CPUs: file(t, mount+"/cpuset/cpuset.cpus"), Mems: file(t, mount+"/cpuset/cpuset.mems"),
	}
	fake, m, err := script.FakeOf(rec)
	if err != nil {
		t.Fatal(err)
	}
	m.Base, m.Device = base, ""
	if err := fake.SetPossible(file(t, "/sys/devices/system/cpu/possible")); err != nil {
		t.Fatal(err)
	}
	if err := fake.Mkdir(base); err != nil {
		t.Fatal(err)
	}
	for _, k := range []script.Kernel{host, fake} {
		for name, text := range map[string]string{"cpus": rec.CPUs, "mems": rec.Mems} {
			if err := k.WriteFile("cpuset/"+base+"/cpuset."+name, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, err := script.Run(host, m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := script.Run(fake, m)
	if err != nil {
		t.Fatal(err)
	}
	if wrong, _ := script.Explain(rec.Kernel, script.Compare(want, got)); len(wrong) > 0 {
		t.Errorf("%d differences between the fake and kernel %s:\n%s", len(wrong), rec.Kernel, script.Table("kernel", "fake", wrong))
	}
}

func file(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Clean(name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
