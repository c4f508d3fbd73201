package bypass

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// progress says whether the OCI runtime still sets up the cgroup of a new container.
type progress int

const (
	unclear progress = iota // no process of it can be seen
	making                  // the OCI runtime is at work on its cgroup
	ready                   // that is over; the workload waits, or runs
)

// progress reports whether the OCI runtime still works on a fresh cgroup, and
// which process that is. The cgroup must be left alone until it has ended: runc
// reads back what it wrote and fails the container where another program wrote meanwhile
// (cpu.shares of version 1, opencontainers cgroups 0.1.0), and sets memory and
// swap in an order that depends on what it finds. The first process of a
// container is a child of the program that creates it until that has ended; by
// the OCI runtimes' common command line (runc, crun, youki) it was called to
// create. The child's own name says nothing: it has several, one after another.
func (s *starts) progress(dir string) (p progress, creator int) {
	text, err := s.tree.FS.ReadFile(path.Join(fileOf(s.tree, dir), procsFile))
	if err != nil {
		return unclear, 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 0 { // 0: of a PID namespace that is not ours to see
		return unclear, 0
	}
	stat := s.process(pid, "stat")
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // comm may hold anything
	if len(fields) < 2 {
		return unclear, 0
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return unclear, 0
	}
	line := s.process(parent, "cmdline")
	args := strings.Split(line, "\x00")
	switch {
	case line == "":
		return unclear, 0
	case slices.Contains(args[1:], "create"), slices.Contains(args[1:], "run"):
		return making, parent
	}
	return ready, 0
}

// made reports whether the OCI runtime is done with a cgroup. The container may
// be called created for ever: of a start that the runtime did not live to see.
func (s *starts) made(dir string) bool {
	at, _ := s.progress(dir)
	return at == ready
}

// procsFile names the file with the processes of a cgroup.
const procsFile = "cgroup.procs"

func (s *starts) process(pid int, file string) string {
	data, err := os.ReadFile(filepath.Join(s.proc, strconv.Itoa(pid), file))
	if err != nil {
		return ""
	}
	return string(data)
}

// exit waits until a process has ended; the error says why that cannot be
// waited for (kernels before 5.10, or a procfs that is not this machine's).
func exit(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err == unix.ESRCH { //nolint:errorlint // a system call's plain number
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch process %d: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	// Closing it ends the wait.
	stop := context.AfterFunc(ctx, func() { f.Close() })
	defer func() {
		if stop() {
			f.Close()
		}
	}()
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		return err == nil && n > 0
	})
}
