package agent

import (
	"os"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/coresched"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/hooksd"
	"github.com/trimtab/trimtab/internal/kube/namespaces"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/resctrl"
	"github.com/trimtab/trimtab/internal/topology/sysfs"
)

// node is what hooks are made for: what was found of the kernel and the machine's
// devices.
type node struct {
	tree    *cgroup.Tree
	devices func() (lifecycle.Host, error)
	// deviceAt looks for one device of the node by its path; nil knows those of
	// devices alone.
	deviceAt func(path string) (lifecycle.Device, bool)
	// hookFiles reads directories of OCI hooks; nil knows the files of devices alone.
	hookFiles func(directories []string) []lifecycle.HookFile
	resctrl   resctrl.FS       // nil if there is none
	cookies   coresched.Kernel // nil if no source has it
	// namespaces knows the labels of namespaces; nil knows none.
	namespaces *namespaces.Store
	// makes: the agent makes directories of the host for containers; without it
	// they count as made.
	makes bool
}

// nodeOf is a node by the given options.
func nodeOf(o Options) node {
	n := node{tree: o.Tree, resctrl: o.Resctrl, cookies: o.Cookies, devices: hostOf(o.Config.Paths), deviceAt: deviceOf(o.Config.Paths), hookFiles: hooksd.Read}
	if o.Host != nil {
		n.deviceAt, n.hookFiles = nil, nil
		n.devices = func() (lifecycle.Host, error) { return *o.Host, nil }
	}
	return n
}

// Host reads the node's devices. It leaves out what cannot be read.
func (n node) Host() lifecycle.Host {
	if n.devices == nil {
		return lifecycle.Host{}
	}
	h, _ := n.devices() // of fixed patterns, which are well formed
	return h
}

// Device looks for one device of the node.
func (n node) Device(path string) (d lifecycle.Device, found bool) {
	if n.deviceAt != nil {
		return n.deviceAt(path)
	}
	d, found = n.Host().Devices[path]
	return d, found
}

// probeDelegation reports whether the kernel keeps containers from the limits of their own
// cgroups. It does so by an option of the one superblock that cgroups of version 2 have.
func (n node) probeDelegation() lifecycle.Finding {
	if n.hookFiles == nil { // a described node
		return lifecycle.Finding{Support: lifecycle.Supported}
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return lifecycle.Finding{Why: err.Error()}
	}
	if !n.Unified() || !delegated(string(text)) {
		return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "cgroups of version 2 are not mounted with nsdelegate"}
	}
	return lifecycle.Finding{Support: lifecycle.Supported}
}

// delegated reports whether a mount of cgroups has nsdelegate. Source: proc(5), mountinfo.
func delegated(mountinfo string) bool {
	for line := range strings.Lines(mountinfo) {
		_, super, _ := strings.Cut(line, " - ")
		if f := strings.Fields(super); len(f) == 3 && f[0] == "cgroup2" && slices.Contains(strings.Split(f[2], ","), "nsdelegate") {
			return true
		}
	}
	return false
}

// HookFiles reads the files of directories of OCI hooks.
func (n node) HookFiles(directories []string) []lifecycle.HookFile {
	if n.hookFiles != nil {
		return n.hookFiles(directories)
	}
	return n.Host().HookFiles
}

// Probe answers whether the node has a feature.
func (n node) Probe(feature string) lifecycle.Finding {
	switch {
	case feature == "nvidia":
		return n.probeDevice("/dev/nvidia")
	case feature == "rdma":
		return n.probeDevice("/dev/infiniband/uverbs")
	case feature == "coreSched":
		return coresched.Probe(n.cookies)
	case feature == "nsdelegate":
		return n.probeDelegation()
	case strings.HasPrefix(feature, resctrl.Mounted):
		return resctrl.Probe(n.resctrl, feature)
	case n.tree == nil:
		return lifecycle.Finding{Why: "no cgroup tree was opened"}
	}
	return n.tree.Probe(feature)
}

// Unified reports whether cgroups are of version 2, or nothing is known of them.
func (n node) Unified() bool { return n.tree == nil || n.tree.Version == cgroup.V2 }

// MakeShared makes a directory that containers of any user write to.
func (n node) MakeShared(path string) error {
	if !n.makes {
		return nil
	}
	return makeShared(path)
}

// hostOf reads devices below the configured directories.
func hostOf(p config.Paths) func() (lifecycle.Host, error) {
	return func() (lifecycle.Host, error) { return sysfs.Host(os.DirFS(p.Dev), os.DirFS(p.Sys)) }
}

// deviceOf looks for devices below the configured directory.
func deviceOf(p config.Paths) func(string) (lifecycle.Device, bool) {
	return func(path string) (lifecycle.Device, bool) { return sysfs.Device(os.DirFS(p.Dev), path) }
}

// probeDevice reports whether a device node of this name and a number exists.
func (n node) probeDevice(prefix string) lifecycle.Finding {
	for path := range n.Host().Devices {
		if number, ok := strings.CutPrefix(path, prefix); ok && strings.Trim(number, "0123456789") == "" && number != "" {
			return lifecycle.Finding{Support: lifecycle.Supported}
		}
	}
	return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "there is no " + prefix + "*"}
}

// Effective says for every hook of the catalogue whether it can take effect on a
// node with this cgroup tree, and with its devices below these directories.
func Effective(tree *cgroup.Tree, p config.Paths, hooks []hook.Info) []api.Hook {
	n := node{tree: tree, devices: hostOf(p), cookies: coresched.Real{}}
	if files, err := resctrl.OpenRoot(p.Resctrl); err == nil {
		defer files.Close()
		n.resctrl = files
	}
	var out []api.Hook
	for _, h := range hooks {
		out = append(out, api.Hook{Name: h.Name, Finding: h.Effective(n.Probe)})
	}
	return out
}
