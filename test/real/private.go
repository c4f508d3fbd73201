package real

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// testNameVariable is an environment variable. In a process with private mounts it has the name of the test that the
// process runs.
const testNameVariable = "TRIMTAB_TEST_PRIVATELY"

// hasPrivateMounts reports whether this process has private mounts.
func hasPrivateMounts() bool { return os.Getenv(testNameVariable) != "" }

// Privately runs the calling test in a new process with private mounts and an empty /run. containerd before 2.0 makes
// its shims' sockets in a fixed directory in /run, and a test must not change that directory of the host. Privately
// returns true in the new process. In the calling process it returns false after the new process has ended. The
// parameter env has additional environment variables of the new process.
func Privately(t *testing.T, env ...string) bool {
	t.Helper()
	return runUnshared(t, syscall.CLONE_NEWNS, env)
}

// WithOwnNetwork does the same as Privately. The new process also has its own network namespace, in which only the
// loopback interface is up.
func WithOwnNetwork(t *testing.T, env ...string) bool {
	t.Helper()
	if !runUnshared(t, syscall.CLONE_NEWNS|syscall.CLONE_NEWNET, env) {
		return false
	}
	if out, err := exec.CommandContext(t.Context(), "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("start the loopback interface: %v\n%s", err, out)
	}
	return true
}

// runUnshared runs the calling test in a new process with the given new namespaces, for Privately.
func runUnshared(t *testing.T, namespaces uintptr, env []string) bool {
	t.Helper()
	needRoot(t)
	if os.Getenv(testNameVariable) == t.Name() {
		if err := syscall.Mount("trimtab", "/run", "tmpfs", 0, "mode=755"); err != nil {
			t.Fatalf("mount an empty /run: %v", err)
		}
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.count=1", "-test.timeout=5m", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(append(os.Environ(), testNameVariable+"="+t.Name()), env...)
	// With these flags Go makes all mounts of the new process private, so mounts in it do not change the host.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: namespaces, Pdeathsig: syscall.SIGTERM}
	out, err := cmd.CombinedOutput()
	if passed := fmt.Sprintf("--- PASS: %s ", t.Name()); err != nil || !strings.Contains(string(out), passed) {
		t.Fatalf("the test failed in a process with private mounts: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

// needRoot skips the test if the process does not run as root. In CI it fails the test instead.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("a private containerd needs root")
	}
	t.Skip("a private containerd needs root")
}
