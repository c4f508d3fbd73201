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

// rootfs has the files of the directory rootfs of this package: configuration and scripts for guests.
//
//go:embed all:rootfs
var rootfs embed.FS

// packageDir returns the directory of this package's source files.
func packageDir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}

// cacheDir returns the directory in which images, snapshots and kernels stay between runs of the tests.
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

// printProgress prints a line for people to the standard error. The line is visible at once, and not only after the
// test.
func printProgress(format string, args ...any) { fmt.Fprintf(os.Stderr, "vm: "+format+"\n", args...) }

// runBuildCommand runs a command, and returns the command's standard output. The command's standard error goes to the
// standard error of this process, where people can see the progress.
func runBuildCommand(cmd *exec.Cmd) (string, error) {
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %s: %w", strings.Join(cmd.Args, " "), err)
	}
	return stdout.String(), nil
}

// goBuild builds static programs from packages of one Go module of this checkout. The parameter module is the directory
// of the module, and into is the directory for the programs.
func goBuild(ctx context.Context, into, module string, packages ...string) error {
	args := append([]string{"build", "-buildvcs=false", "-trimpath", "-tags", "nri_no_wasm,grpcnotrace", "-ldflags=-s -w", "-o", into + "/"}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(packageDir(), "../..", module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	_, err := runBuildCommand(cmd)
	return err
}

// tools has the directories of a node's programs. The versions are pinned in test/tools/build.sh.
type tools struct{ containerd, runc, kubelet string }

// pinnedTools returns the directories of the tools. It builds the tools once per process.
var pinnedTools = sync.OnceValues(func() (tools, error) {
	out, err := runBuildCommand(exec.Command(filepath.Join(packageDir(), "../tools/build.sh"), "containerd", "runc", "kubelet"))
	if err != nil {
		return tools{}, err
	}
	dirs := strings.Fields(out)
	if len(dirs) != 3 {
		return tools{}, fmt.Errorf("test/tools/build.sh must print three directories, but printed %q", out)
	}
	return tools{dirs[0], dirs[1], dirs[2]}, nil
})

// buildOnce makes the file or directory at a path, if it does not exist. The function create must make it at a
// temporary path, which is the argument work. Then buildOnce renames it to its path. With a lock file, buildOnce
// prevents that another process makes it at the same time.
func buildOnce(path string, create func(work string) error) error {
	if _, err := os.Stat(path); err == nil {
		now := time.Now()
		return os.Chtimes(path, now, now) // so that prune keeps the file or directory
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
		return nil // another process has made the path in the meantime
	}
	work := path + ".new"
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := create(work); err != nil {
		return errors.Join(err, os.RemoveAll(work))
	}
	return os.Rename(work, path)
}

// maxUnusedAge is how long an entry of the cache stays after its last use.
const maxUnusedAge = 7 * 24 * time.Hour

// prune removes the entries of the cache that no test has used for maxUnusedAge. Otherwise each change of a disk or of
// QEMU's arguments would leave some hundred megabytes. It ignores errors, because pruning is optional.
func prune(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > maxUnusedAge {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// writeFileOnce writes a file atomically. It does nothing if the file exists.
func writeFileOnce(path string, content []byte) error {
	return buildOnce(path, func(work string) error { return os.WriteFile(work, content, 0o644) })
}
