package faults

import (
	"io/fs"
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// Faults of calls on cgroup files. Real calls can also return other errors, when the kernel refuses a value. With the
// fault "EIO at close", the value is in force although the write returns an error.
var (
	kernelReadFaults  = errnoFaults(syscall.EIO, syscall.EINTR, syscall.EMFILE)
	kernelWriteFaults = append([]Fault{{Kind: "EIO at close", Err: syscall.EIO, Late: true}},
		errnoFaults(syscall.EIO, syscall.EINTR, syscall.EBUSY, syscall.EMFILE)...)
)

// Kernel returns cgroup files whose calls fail as the plan says; the other calls go to inner. If afterWrite is not nil,
// Kernel's files call it after each write that succeeded in inner.
func Kernel(p *Plan, inner cgroup.FS, afterWrite func(path string)) cgroup.FS {
	return &kernel{p, inner, afterWrite}
}

// kernel has the cgroup files that Kernel returns.
type kernel struct {
	plan       *Plan
	fs         cgroup.FS
	afterWrite func(path string) // is called after each write that succeeded in fs; nil for none
}

func (k *kernel) ReadFile(path string) ([]byte, error) {
	if f := k.plan.next("cgroup read", kernelReadFaults); f.Err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: f.Err}
	}
	return k.fs.ReadFile(path)
}

func (k *kernel) List(dir string) ([]string, error) {
	if f := k.plan.next("cgroup list", kernelReadFaults); f.Err != nil {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: f.Err}
	}
	return k.fs.List(dir)
}

func (k *kernel) WriteFile(path string, data []byte) error {
	f := k.plan.next("cgroup write", kernelWriteFaults)
	failed := &fs.PathError{Op: "write", Path: path, Err: f.Err}
	if f.Err != nil && !f.Late {
		return failed
	}
	err := k.fs.WriteFile(path, data)
	if err == nil && k.afterWrite != nil {
		k.afterWrite(path)
	}
	if err == nil && f.Err != nil {
		return failed
	}
	return err
}
