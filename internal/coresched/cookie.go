package coresched

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// cookie returns a thread's cookie, which the kernel writes to the given address; 0 if the thread has none.
func cookie(thread int) (uint64, error) {
	var c uint64
	at := uintptr(unsafe.Pointer(&c)) //nolint:gosec // prctl takes addresses as numbers; c is used below
	err := unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, uintptr(thread), oneThread, at)
	return c, err
}
