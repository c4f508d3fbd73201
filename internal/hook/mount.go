package hook

import (
	"path"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// access is the kind of access that a container gets to a mounted file or directory of the host.
type access int

// A file for reading may be a library, so it is not mounted noexec. A directory for writing is
// mounted noexec.
const (
	toRead access = iota
	toWrite
)

// mount proposes a mount of a file or directory of the host in a container. Every mount of every
// hook is made here. No mount allows device nodes, set-user-ID programs or host mounts below it.
// Files in writable mounts cannot be executed.
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
