package coresched

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// cookie returns a thread's cookie, or 0 if the thread has none. The function passes an address to prctl, and the
// kernel writes the cookie to this address.
func cookie(thread int) (uint64, error) {
	var c uint64
	at := uintptr(unsafe.Pointer(&c)) //nolint:gosec // prctl takes an address as a number; the return statement keeps c alive
	err := unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, uintptr(thread), oneThread, at)
	return c, err
}
