package coresched

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Kernel reads and sets the core scheduling cookies of single threads.
type Kernel interface {
	// Cookie returns a thread's cookie, 0 for none.
	Cookie(thread int) (uint64, error)
	// Create gives a thread a cookie that no other thread has.
	Create(thread int) error
	// Share gives the thread target the cookie of the thread source. If source is 0, Share removes the cookie of
	// target.
	Share(source, target int) error
}

// oneThread is PR_SCHED_CORE_SCOPE_THREAD of prctl(2): the call affects one thread, not the thread's whole process.
const oneThread = 0

// Real is the Kernel of the host. Its methods call prctl(2). The agent needs the host's PID namespace and
// CAP_SYS_PTRACE.
type Real struct{}

// Cookie returns a thread's cookie.
func (Real) Cookie(thread int) (uint64, error) {
	return cookie(thread)
}

// Create gives a thread a new cookie.
func (Real) Create(thread int) error {
	return unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_CREATE, uintptr(thread), oneThread, 0)
}

// Share gives the thread target the cookie of the thread source. A new thread of the agent takes the cookie of source
// and gives it to target. The new thread then ends, so that no other code of the agent runs with the cookie.
func (Real) Share(source, target int) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with its goroutine
		var err error
		if source != 0 {
			err = unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_SHARE_FROM, uintptr(source), oneThread, 0)
		}
		if err == nil {
			err = unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_SHARE_TO, uintptr(target), oneThread, 0)
		}
		done <- err
	}()
	return <-done
}

// Probe reports whether a kernel supports cookies. It reads the cookie of the agent's own thread.
func Probe(k Kernel) lifecycle.Finding {
	if k == nil {
		return lifecycle.Finding{Why: "the agent cannot test whether the kernel supports core scheduling"}
	}
	_, err := k.Cookie(0)
	switch {
	case err == nil:
		return lifecycle.Finding{Support: lifecycle.Supported}
	case errors.Is(err, unix.EINVAL):
		return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "the kernel was built without core scheduling"}
	case errors.Is(err, unix.ENODEV):
		return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "the processors run one thread per core"}
	}
	return lifecycle.Finding{Why: fmt.Sprintf("the agent cannot read its own core scheduling cookie: prctl: %v", err)}
}
