package hook

import (
	"path"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// access is how a container may use a mounted file or directory of the host.
type access int

// The kinds of access. A readOnly file can be a library, so it is not mounted noexec. A readWrite file or directory is
// mounted noexec.
const (
	readOnly access = iota
	readWrite
)

// addMount proposes a bind mount of a file or directory of the host in a container. Hooks make all mounts with
// addMount. The mount allows no device nodes and no set-user-ID programs, and does not include mounts below the source.
// Files in writable mounts cannot be executed.
func (o *Output) addMount(destination, source string, may access, why lifecycle.Reason) {
	options := []string{"bind", "ro", "nosuid", "nodev"}
	if may == readWrite {
		options = []string{"bind", "rw", "nosuid", "nodev", "noexec"}
	}
	destination = path.Clean(destination)
	o.Values = append(o.Values, lifecycle.Value{
		Field: lifecycle.MountPoint, Key: destination, Why: why,
		Mount: &lifecycle.Mount{Destination: destination, Type: "bind", Source: path.Clean(source), Options: options},
	})
}
