package faults

import (
	"io/fs"
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// Errors that calls on cgroup files may return, besides those for refused values. A close may fail after the value is
// in force.
var (
	kernelReadFaults  = errnoFaults(syscall.EIO, syscall.EINTR, syscall.EMFILE)
	kernelWriteFaults = append([]Fault{{Kind: "EIO at close", Err: syscall.EIO, Late: true}},
		errnoFaults(syscall.EIO, syscall.EINTR, syscall.EBUSY, syscall.EMFILE)...)
)

// Kernel makes calls on cgroup files fail. It calls wrote after each write that reached the kernel, before the next
// call; nil if not needed.
func Kernel(p *Plan, under cgroup.FS, wrote func(path string)) cgroup.FS {
	return &kernel{p, under, wrote}
}

type kernel struct {
	plan  *Plan
	fs    cgroup.FS
	wrote func(path string)
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
	if err == nil && k.wrote != nil {
		k.wrote(path)
	}
	if err == nil && f.Err != nil {
		return failed
	}
	return err
}
