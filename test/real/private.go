package real

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// privately names, in the environment of a process with mounts of its own, the test that process runs.
const privately = "TRIMTAB_TEST_PRIVATELY"

func private() bool { return os.Getenv(privately) != "" }

// Privately runs the calling test in a process of its own, with mounts of its own and an empty /run: containerd before
// 2.0 keeps its shims' sockets in a folder there whose name is compiled in, and a test must not touch the host's. It is
// true in that process; in the caller's it is false, and the test is over. env is handed down.
func Privately(t *testing.T, env ...string) bool {
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
	// Go makes all mounts of such a child private to it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
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
