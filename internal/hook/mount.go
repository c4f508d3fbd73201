package hook

import (
	"path"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// access is what a container may do with what it is given of the host's files.
type access int

// A file to read may be a library to load, so it is not mounted noexec. Files in a
// directory to write to are not to be executed.
const (
	toRead access = iota
	toWrite
)

// mount gives a container a file or directory of the host at a path of its own.
// Every mount of every hook is made here: none has device nodes, none lets a
// program gain privileges, none brings mounts of the host below it, and what is
// written to is never executed.
func (o *Output) mount(destination, source string, may access, why lifecycle.Reason) {
	options := []string{"bind", "ro", "nosuid", "nodev"}
	if may == toWrite {
		options = []string{"bind", "rw", "nosuid", "nodev", "noexec"}
	}
	destination = path.Clean(destination)
	o.Values = append(o.Values, lifecycle.Value{
		Field: lifecycle.MountPoint, Key: destination, Why: why,
		Mount: &lifecycle.Mount{Destination: destination, Type: "bind", Source: path.Clean(source), Options: options},
	})
}
