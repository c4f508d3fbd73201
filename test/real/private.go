package real

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// privately is the environment variable with the test that a process with private mounts runs.
const privately = "TRIMTAB_TEST_PRIVATELY"

func private() bool { return os.Getenv(privately) != "" }

// Privately runs the calling test in a new process with private mounts and an empty /run. containerd before 2.0 keeps
// its shims' sockets in a fixed directory in /run, and a test must not touch the host's. It returns true in the new
// process, and false in the caller after the test has ended. The process gets env.
func Privately(t *testing.T, env ...string) bool {
	t.Helper()
	return unshared(t, syscall.CLONE_NEWNS, env)
}

// WithOwnNetwork is Privately with a network namespace of its own, in which only the loopback interface is up.
func WithOwnNetwork(t *testing.T, env ...string) bool {
	t.Helper()
	if !unshared(t, syscall.CLONE_NEWNS|syscall.CLONE_NEWNET, env) {
		return false
	}
	if out, err := exec.CommandContext(t.Context(), "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("loopback: %v\n%s", err, out)
	}
	return true
}

func unshared(t *testing.T, namespaces uintptr, env []string) bool {
	t.Helper()
	needRoot(t)
	if os.Getenv(privately) == t.Name() {
		if err := syscall.Mount("trimtab", "/run", "tmpfs", 0, "mode=755"); err != nil {
			t.Fatalf("an empty /run: %v", err)
		}
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.count=1", "-test.timeout=5m", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(append(os.Environ(), privately+"="+t.Name()), env...)
	// Go makes all mounts of such a child private.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: namespaces, Pdeathsig: syscall.SIGTERM}
	out, err := cmd.CombinedOutput()
	if passed := fmt.Sprintf("--- PASS: %s ", t.Name()); err != nil || !strings.Contains(string(out), passed) {
		t.Fatalf("with mounts of its own: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

// needRoot skips the test where it does not run as root, except in CI.
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
