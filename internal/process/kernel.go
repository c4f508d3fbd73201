package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Real is the Kernel that makes the system calls. The agent must be in the host's PID namespace. It needs
// CAP_SYS_RESOURCE for higher limits and for the limits of other users' processes. It needs CAP_SYS_NICE for real-time
// policies, lower nice values and processes of other users.
type Real struct{}

// errBadForm is the error of a value whose text is not valid for its field.
var errBadForm = errors.New("the value is malformed")

// Has reports whether an attribute of a thread has the value v. The field and the key of v name the attribute.
func (Real) Has(thread int, v lifecycle.Value) (bool, error) {
	switch v.Field {
	case lifecycle.ProcessLimit:
		want, number, err := limitOf(v)
		if err != nil {
			return false, err
		}
		var now unix.Rlimit
		if err := unix.Prlimit(thread, number, nil, &now); err != nil {
			return false, explainDenied(err, "read the limit "+v.Key, "CAP_SYS_RESOURCE")
		}
		return now == want, nil
	case lifecycle.ProcessIO:
		want, err := priorityOf(v)
		if err != nil {
			return false, err
		}
		now, _, code := unix.Syscall(unix.SYS_IOPRIO_GET, ioprioProcess, uintptr(thread), 0)
		if code != 0 {
			return false, fmt.Errorf("read the I/O priority: %w", code)
		}
		return now == want, nil
	case lifecycle.ProcessSched:
		want, err := policyOf(v)
		if err != nil {
			return false, err
		}
		now, err := unix.SchedGetAttr(thread, 0)
		if err != nil {
			return false, fmt.Errorf("read the scheduling policy: %w", err)
		}
		if want.Policy == unix.SCHED_IDLE { // the nice value has no effect with SCHED_IDLE, so it is not compared
			want.Nice = now.Nice
		}
		return now.Policy == want.Policy && now.Nice == want.Nice && now.Priority == want.Priority && now.Flags&want.Flags == want.Flags, nil
	}
	return false, errBadForm
}

// Set gives an attribute of a thread the value v. The field and the key of v name the attribute.
func (Real) Set(thread int, v lifecycle.Value) error {
	switch v.Field {
	case lifecycle.ProcessLimit:
		want, number, err := limitOf(v)
		if err == nil {
			err = explainDenied(unix.Prlimit(thread, number, &want, nil), "set the limit "+v.Key+" to "+v.Text, "CAP_SYS_RESOURCE")
		}
		return err
	case lifecycle.ProcessIO:
		want, err := priorityOf(v)
		if err != nil {
			return err
		}
		if _, _, code := unix.Syscall(unix.SYS_IOPRIO_SET, ioprioProcess, uintptr(thread), want); code != 0 {
			return explainDenied(code, "set the I/O priority "+v.Text, "CAP_SYS_NICE")
		}
		return nil
	case lifecycle.ProcessSched:
		want, err := policyOf(v)
		if err == nil {
			err = explainDenied(unix.SchedSetAttr(thread, &want, 0), "set the scheduling policy "+v.Text, "CAP_SYS_NICE")
		}
		return err
	}
	return errBadForm
}

// explainDenied returns the error of a system call with an explanation. The parameter what says what the call should
// do. If the kernel did not permit the call, the explanation also names the capability that the agent possibly lacks.
func explainDenied(err error, what, capability string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s: the kernel did not permit it, and the agent may lack %s: %w", what, capability, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// rlimitNumbers are the kernel's numbers of resource limits (getrlimit(2)), by name.
var rlimitNumbers = map[string]int{
	"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_CPU": unix.RLIMIT_CPU, "RLIMIT_DATA": unix.RLIMIT_DATA,
	"RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK,
	"RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_NICE": unix.RLIMIT_NICE, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE,
	"RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_RSS": unix.RLIMIT_RSS, "RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO,
	"RLIMIT_RTTIME": unix.RLIMIT_RTTIME, "RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING, "RLIMIT_STACK": unix.RLIMIT_STACK,
}

// limitOf returns the limit in a value, and the kernel's number of the limited resource.
func limitOf(v lifecycle.Value) (want unix.Rlimit, number int, err error) {
	r, ok := lifecycle.ParseRlimit(v.Key, v.Text)
	number, known := rlimitNumbers[v.Key]
	if !ok || !known {
		return want, 0, fmt.Errorf("limit %s %q: %w", v.Key, v.Text, errBadForm)
	}
	return unix.Rlimit{Cur: r.Soft, Max: r.Hard}, number, nil
}

// Constants of ioprio_set(2).
const (
	ioprioProcess = 1  // IOPRIO_WHO_PROCESS, which is one thread
	ioprioShift   = 13 // the position of the class in an I/O priority
)

// ioClasses are the kernel's numbers of I/O scheduling classes, by name.
var ioClasses = map[string]uintptr{"IOPRIO_CLASS_NONE": 0, "IOPRIO_CLASS_RT": 1, "IOPRIO_CLASS_BE": 2, "IOPRIO_CLASS_IDLE": 3}

// priorityOf returns the I/O priority in a value, in the form of ioprio_set(2).
func priorityOf(v lifecycle.Value) (uintptr, error) {
	p, ok := lifecycle.ParseIOPriority(v.Text)
	class, known := ioClasses[p.Class]
	if !ok || !known || p.Priority < 0 || p.Priority > 7 {
		return 0, fmt.Errorf("I/O priority %q: %w", v.Text, errBadForm)
	}
	return class<<ioprioShift | uintptr(p.Priority), nil
}

// schedPolicies are the kernel's numbers of scheduling policies, by name.
var schedPolicies = map[string]uint32{
	"SCHED_OTHER": unix.SCHED_NORMAL, "SCHED_FIFO": unix.SCHED_FIFO, "SCHED_RR": unix.SCHED_RR, "SCHED_BATCH": unix.SCHED_BATCH, "SCHED_IDLE": unix.SCHED_IDLE,
}

// schedFlags are the kernel's flags of scheduling policies, by name.
var schedFlags = map[string]uint64{
	"SCHED_FLAG_RESET_ON_FORK": unix.SCHED_FLAG_RESET_ON_FORK, "SCHED_FLAG_RECLAIM": unix.SCHED_FLAG_RECLAIM,
	"SCHED_FLAG_DL_OVERRUN": unix.SCHED_FLAG_DL_OVERRUN,
}

// errDeadline is the reason why the agent does not set SCHED_DEADLINE. Under this policy the kernel gives each thread a
// budget of its own, and new threads cannot inherit the policy. So the agent does not set it for the threads of a
// running container.
var errDeadline = errors.New("the agent does not set SCHED_DEADLINE for running threads; only an OCI runtime can start a container with this policy")

// policyOf returns the scheduling policy in a value, with its attributes, in the form of sched_setattr(2).
func policyOf(v lifecycle.Value) (unix.SchedAttr, error) {
	s, ok := lifecycle.ParseScheduler(v.Text)
	policy, known := schedPolicies[s.Policy]
	switch {
	case s.Policy == "SCHED_DEADLINE":
		return unix.SchedAttr{}, errDeadline
	case !ok || !known || s.Priority < 0:
		return unix.SchedAttr{}, fmt.Errorf("scheduling policy %q: %w", v.Text, errBadForm)
	}
	a := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Nice: s.Nice, Priority: uint32(s.Priority)} //nolint:gosec // not negative
	for _, f := range s.Flags {
		bit, known := schedFlags[f]
		if !known {
			return a, fmt.Errorf("scheduling policy %q: only an OCI runtime can set the flag %s", v.Text, f)
		}
		a.Flags |= bit
	}
	return a, nil
}
