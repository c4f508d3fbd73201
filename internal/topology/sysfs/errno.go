package sysfs

import (
	"errors"
	"syscall"
)

// isUnknown reports whether a driver returned an error for an unknown value.
func isUnknown(err error) bool {
	for _, e := range []syscall.Errno{syscall.ENODEV, syscall.ENXIO, syscall.EINVAL, syscall.EIO, syscall.EBUSY, syscall.EAGAIN, syscall.EOPNOTSUPP, syscall.ENOTDIR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
