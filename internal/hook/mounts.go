package hook

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// MountsOptions are the options of the hook that mounts files and directories of the host in containers whose pods
// request this by an annotation. The annotation's key and value are those of the plugin device-injector of NRI 0.12.
type MountsOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Allowed are the files and directories of the host that pods may mount and read. A path does not allow
	// paths below it, because a link there could lead elsewhere. If this list and writable are
	// empty, pods may mount nothing.
	Allowed []string `json:"allowed" check:"path"`
	// Writable are the files and directories that pods may mount and write to. A directory in this list must not
	// contain another path of the lists allowed and writable. Otherwise a pod that writes to the directory could
	// replace that path by a symbolic link to any file of the host.
	Writable []string `json:"writable" check:"path"`
}

// Info describes the hook.
func (MountsOptions) Info() Info {
	return Info{
		Name:    "mounts",
		About:   "files and directories of the host that a pod mounts",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRIMounts},
		Sets:    []lifecycle.Field{lifecycle.MountPoint},
		Compose: "one hook per mount",
		Differs: []string{
			"pods may mount only the paths in hooks.mounts.allowed and hooks.mounts.writable, and no paths below them; the agent reports other mounts, and the container starts without them",
			"only bind mounts, always without devices and set-user-ID. They are read-only unless the options contain rw, and then noexec. Mounts below the path are not included",
			"the target of a link below an allowed path is not mounted; in a container the link leads to the container's own files",
			"nothing is mounted on /, /dev, /proc or /sys, or below these",
			"a malformed text is reported, and the container starts without its mounts; the plugin fails the creation",
		},
	}
}

// Propose adds the mounts that the pod requests for a container.
func (h MountsOptions) Propose(in *Input, out *Output) {
	asked, why, ok := scopedRequest(in, in.Intent.Mounts, "mounts")
	if !ok {
		return
	}
	for _, m := range asked.V {
		switch writable := slices.Contains(h.Writable, m.Source); {
		case m.Writable && !writable:
			out.decline(asked.Key, m.Source, "mounts: hooks.mounts.writable does not list this path")
		case !writable && !slices.Contains(h.Allowed, m.Source):
			out.decline(asked.Key, m.Source, "mounts: hooks.mounts.allowed does not list this path")
		case m.Writable:
			out.addMount(m.Destination, m.Source, readWrite, why)
		default:
			out.addMount(m.Destination, m.Source, readOnly, why)
		}
	}
}
