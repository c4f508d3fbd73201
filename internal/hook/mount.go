package hook

import (
	"path"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// access is what a container may do with a mounted file or directory of the host.
type access int

// A file to read may be a library, so it is not mounted noexec. Files in a directory to write
// to cannot be executed.
const (
	toRead access = iota
	toWrite
)

// mount mounts a file or directory of the host in a container. Every mount of every hook is
// made here. No mount allows device nodes, gains of privileges or host mounts below it; files
// in writable mounts cannot be executed.
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
