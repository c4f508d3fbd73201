package coresched

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// cookie requests a thread's cookie from the kernel, which writes it to the given address.
func cookie(thread int) (uint64, error) {
	var c uint64
	at := uintptr(unsafe.Pointer(&c)) //nolint:gosec // prctl takes addresses as numbers; c is used below
	err := unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, uintptr(thread), oneThread, at)
	return c, err
}
