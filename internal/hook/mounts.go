package hook

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Mounts mounts files and directories of the host in containers, as their pod asks.
// Keys and values: NRI 0.12, plugin device-injector.
type Mounts struct {
	// Allowed are the paths of the host that pods may read. Writable are the paths that they may
	// also write.
	Allowed, Writable []string
}

// MountsOptions tunes the hook of mounts.
type MountsOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Allowed are the files and directories of the host that pods may mount and read. A
	// path allows nothing below it, so that no link there leads elsewhere. Without any,
	// pods get none.
	Allowed []string `json:"allowed" check:"path"`
	// Writable are those that pods may also write to. No other path of the two lists may lie below
	// one of them, since a pod could replace it by a link.
	Writable []string `json:"writable" check:"path"`
}

// AllOn is the hook with all that can be switched on.
func (MountsOptions) AllOn() Hook { return Mounts{} }

// Make makes the hook for a node.
func (o MountsOptions) Make(Node, *Options) (Hook, error) {
	return Mounts{Allowed: o.Allowed, Writable: o.Writable}, nil
}

// Info describes the hook.
func (Mounts) Info() Info {
	return Info{
		Name:    "mounts",
		About:   "files and directories of the host that a pod mounts",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRIMounts},
		Sets:    []lifecycle.Field{lifecycle.MountPoint},
		Compose: "one hook per mount",
		Differs: []string{
			"only the paths in hooks.mounts.allowed and hooks.mounts.writable, and nothing below them; the agent reports others, and the container gets the rest",
			"only bind mounts, always without devices and set-user-ID. They are read-only unless the options contain rw, and then noexec. Mounts below the path are not included",
			"a link below an allowed path is not mounted, whatever it leads to; in a container it leads to the container's own files",
			"nothing is mounted on /, /dev, /proc or /sys, or below these",
			"a malformed text is reported, and the container starts without its mounts; the plugin fails the creation",
		},
	}
}

// Propose adds the mounts.
func (h Mounts) Propose(in *Input, out *Output) {
	asked, why, ok := scoped(in, in.Intent.Mounts, "mounts")
	if !ok {
		return
	}
	for _, m := range asked.V {
		may, no := toRead, ""
		writable := slices.Contains(h.Writable, m.Source)
		switch {
		case m.Writable && writable:
			may = toWrite
		case m.Writable:
			no = "hooks.mounts.writable does not list it"
		case !writable && !slices.Contains(h.Allowed, m.Source):
			no = "hooks.mounts.allowed does not list it"
		}
		if no != "" {
			out.decline(asked.Key, m.Source, "mounts: "+no)
			continue
		}
		out.mount(m.Destination, m.Source, may, why)
	}
}
