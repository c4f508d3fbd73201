package real

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// tools are the programs that a private containerd needs.
type tools struct {
	dirs        map[Release]string // directories with containerd and its shim
	runc        string             // path of runc
	probe, reap []byte             // the programs in test/real/probe and test/real/reap
}

// containerd returns the path of the daemon's program of a release line.
func (t *tools) containerd(r Release) string { return filepath.Join(t.dirs[r], "containerd") }

// shim returns the path of the shim's program of a release line.
func (t *tools) shim(r Release) string { return filepath.Join(t.dirs[r], "containerd-shim-runc-v2") }

// prepared calls prepare once per test process, and returns the same result to all callers.
var prepared = sync.OnceValues(prepare)

// prepare returns the tools. containerd and runc have fixed versions, and come from the cache of test/tools/build.sh.
// This script builds the tools that are missing in the cache, which takes minutes.
func prepare() (*tools, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return nil, errors.New("the directory of the test's source files is unknown")
	}
	here := filepath.Dir(file)
	dirs, err := build(exec.Command(filepath.Join(here, "../tools/build.sh"), "containerd", "containerd17", "runc"))
	if err != nil {
		return nil, err
	}
	lines := strings.Fields(dirs)
	if len(lines) != 3 {
		return nil, fmt.Errorf("test/tools/build.sh printed %q, want the paths of three directories", dirs)
	}
	t := &tools{dirs: map[Release]string{Newest: lines[0], V17: lines[1], V16: "/usr/bin"}, runc: filepath.Join(lines[2], "runc")}
	out, err := os.MkdirTemp("", "ttbuild")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", out+"/", "./probe", "./reap")
	cmd.Dir = here
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if _, err := build(cmd); err != nil {
		return nil, err
	}
	var errProbe, errReap error
	t.probe, errProbe = os.ReadFile(filepath.Join(out, "probe"))
	t.reap, errReap = os.ReadFile(filepath.Join(out, "reap"))
	return t, errors.Join(errProbe, errReap)
}

// Probe returns the static program that runs in the containers of the tests.
func Probe(t testing.TB) []byte {
	t.Helper()
	tools, err := prepared()
	if err != nil {
		t.Fatal(err)
	}
	return tools.probe
}

// build runs a command, shows its progress and returns its standard output.
func build(cmd *exec.Cmd) (string, error) {
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return printed.String(), nil
}
