package coresched

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Kernel are the kernel's calls for cookies of single threads.
type Kernel interface {
	// Cookie returns a thread's cookie, 0 for none.
	Cookie(thread int) (uint64, error)
	// Create gives a thread a cookie nobody has.
	Create(thread int) error
	// Share gives one thread's cookie to another; from 0, none.
	Share(from, to int) error
}

// oneThread is PR_SCHED_CORE_SCOPE_THREAD of prctl(2): the call is for one thread, not for its process.
const oneThread = 0

// Real asks the kernel, by prctl(2). It needs the capability to trace the
// threads, and to see them: the host's PID namespace.
type Real struct{}

// Cookie returns a thread's cookie.
func (Real) Cookie(thread int) (uint64, error) {
	return cookie(thread)
}

// Create gives a thread a new cookie.
func (Real) Create(thread int) error {
	return unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_CREATE, uintptr(thread), oneThread, 0)
}

// Share uses a thread of ours, which takes the cookie and passes it on. The thread
// then ends: nothing else of ours may run with a cookie.
func (Real) Share(from, to int) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its goroutine
		var err error
		if from != 0 {
			err = unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_SHARE_FROM, uintptr(from), oneThread, 0)
		}
		if err == nil {
			err = unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_SHARE_TO, uintptr(to), oneThread, 0)
		}
		done <- err
	}()
	return <-done
}

// Probe says whether a kernel gives cookies, by asking for one for ourselves.
func Probe(k Kernel) lifecycle.Finding {
	if k == nil {
		return lifecycle.Finding{Why: "nobody can ask"}
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
	return lifecycle.Finding{Why: fmt.Sprintf("prctl: %v", err)}
}
