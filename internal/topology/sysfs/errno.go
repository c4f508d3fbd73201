package sysfs

import (
	"errors"
	"syscall"
)

// isUnknown reports whether err is an error that drivers return if they do not know the value of a file.
func isUnknown(err error) bool {
	for _, e := range []syscall.Errno{syscall.ENODEV, syscall.ENXIO, syscall.EINVAL, syscall.EIO, syscall.EBUSY, syscall.EAGAIN, syscall.EOPNOTSUPP, syscall.ENOTDIR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
