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

// setupState is what procfs shows about the setup of a new container's cgroup by the OCI runtime.
type setupState int

const (
	setupUnknown  setupState = iota // no process of the container is visible
	setupRunning                    // the OCI runtime possibly still writes to the container's cgroup
	setupFinished                   // the OCI runtime has finished the setup; the workload waits for its start, or runs
)

// setupState returns whether the OCI runtime still sets up a new cgroup, and the process id of that OCI runtime. No
// other program may write to the cgroup until the OCI runtime's process has ended. runc reads back what it wrote, and
// fails the container if another program wrote in between (cpu.shares of version 1, opencontainers cgroups 0.1.0). runc
// also sets memory and swap in an order that depends on their present values, so another write could make the order
// wrong.
//
// Until the OCI runtime's process has ended, it is the parent of the container's first process. The command line of
// runc, crun and youki has the argument "create" or "run". The name of the container's first process does not show
// whether the setup has ended, because this name changes several times.
func (s *startWatcher) setupState(dir string) (p setupState, creator int) {
	text, err := s.tree.FS.ReadFile(path.Join(watchedPath(s.tree, dir), procsFile))
	if err != nil {
		return setupUnknown, 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 0 { // 0: the process is in a PID namespace that is invisible here
		return setupUnknown, 0
	}
	stat := s.readProc(pid, "stat")
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // comm may contain any character
	if len(fields) < 2 {
		return setupUnknown, 0
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return setupUnknown, 0
	}
	line := s.readProc(parent, "cmdline")
	args := strings.Split(line, "\x00")
	switch {
	case line == "":
		return setupUnknown, 0
	case slices.Contains(args[1:], "create"), slices.Contains(args[1:], "run"):
		return setupRunning, parent
	}
	return setupFinished, 0
}

// setupDone reports whether the OCI runtime has finished the setup of a cgroup. The container's state in the CRI does
// not show this: if the runtime was stopped during the container's start, the state stays "created" for ever.
func (s *startWatcher) setupDone(dir string) bool {
	at, _ := s.setupState(dir)
	return at == setupFinished
}

// procsFile is the file that lists the processes of a cgroup.
const procsFile = "cgroup.procs"

// readProc returns the content of a file in a process's directory of procfs, or "" on an error.
func (s *startWatcher) readProc(pid int, file string) string {
	data, err := os.ReadFile(filepath.Join(s.proc, strconv.Itoa(pid), file))
	if err != nil {
		return ""
	}
	return string(data)
}

// awaitExit waits until a process of the agent's PID namespace has ended. It returns an error if ctx ends first, or if
// the kernel cannot report the end of a process (kernels before 5.10).
func awaitExit(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err == unix.ESRCH { //nolint:errorlint // PidfdOpen returns a plain errno, never a wrapped error
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch process %d: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	// Closing f ends the wait.
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
