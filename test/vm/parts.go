package vm

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

//go:embed all:rootfs
var rootfs embed.FS

// packageDir returns the folder of this package.
func packageDir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}

// cacheDir returns the folder in which images, snapshots and kernels are kept between runs.
var cacheDir = sync.OnceValues(func() (string, error) {
	root := os.Getenv("TRIMTAB_CACHE")
	if root == "" {
		root = filepath.Join(packageDir(), "../../.cache/tools")
	}
	root, err := filepath.Abs(filepath.Join(root, "vm"))
	if err != nil {
		return "", err
	}
	return root, os.MkdirAll(root, 0o755)
})

// printProgress prints progress at once.
func printProgress(format string, args ...any) { fmt.Fprintf(os.Stderr, "vm: "+format+"\n", args...) }

// runBuildCommand runs a command, prints its progress and returns its output.
func runBuildCommand(cmd *exec.Cmd) (string, error) {
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return printed.String(), nil
}

// goBuild builds static programs of a module of this checkout into a folder.
func goBuild(ctx context.Context, into, module string, packages ...string) error {
	args := append([]string{"build", "-buildvcs=false", "-trimpath", "-tags", "nri_no_wasm,grpcnotrace", "-ldflags=-s -w", "-o", into + "/"}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(packageDir(), "../..", module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	_, err := runBuildCommand(cmd)
	return err
}

// tools are the pinned programs of a node, from test/tools/build.sh.
type tools struct{ containerd, runc, kubelet string }

// pinnedTools builds the tools once for this process.
var pinnedTools = sync.OnceValues(func() (tools, error) {
	out, err := runBuildCommand(exec.Command(filepath.Join(packageDir(), "../tools/build.sh"), "containerd", "runc", "kubelet"))
	if err != nil {
		return tools{}, err
	}
	dirs := strings.Fields(out)
	if len(dirs) != 3 {
		return tools{}, fmt.Errorf("tools: want three folders, have %q", out)
	}
	return tools{dirs[0], dirs[1], dirs[2]}, nil
})

// buildOnce calls make unless the path exists, with at most one call at a time among all processes. It moves
// what make created to the path.
func buildOnce(path string, make func(work string) error) error {
	if _, err := os.Stat(path); err == nil {
		now := time.Now()
		return os.Chtimes(path, now, now) // for prune
	}
	defer prune(filepath.Dir(path))
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close() // this also releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		return nil // another run has made it meanwhile
	}
	work := path + ".new"
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := make(work); err != nil {
		return errors.Join(err, os.RemoveAll(work))
	}
	return os.Rename(work, path)
}

// maxUnusedAge is how long an unused entry stays in the cache.
const maxUnusedAge = 7 * 24 * time.Hour

// prune removes entries that were not used for long: each change of a disk or of QEMU's arguments leaves
// some hundred megabytes. Errors are ignored, because pruning is optional.
func prune(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > maxUnusedAge {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// replaceFile writes a file atomically.
func replaceFile(path string, content []byte) error {
	return buildOnce(path, func(work string) error { return os.WriteFile(work, content, 0o644) })
}
