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
	"github.com/trimtab/trimtab/internal/process"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/resctrl"
	"github.com/trimtab/trimtab/internal/topology/sysfs"
)

// node has the features of the kernel and the devices of the machine, for making hooks.
type node struct {
	tree    *cgroup.Tree
	devices func() (lifecycle.Host, error)
	// deviceAt finds a device of the node by its path. If deviceAt is nil, only the devices in devices are
	// known.
	deviceAt func(path string) (lifecycle.Device, bool)
	// hookFiles reads directories of OCI hooks. If hookFiles is nil, only the files in devices are known.
	hookFiles func(directories []string) []lifecycle.HookFile
	resctrl   resctrl.FS       // nil if the node has none
	cookies   coresched.Kernel // nil if no source has them
	processes process.Kernel   // nil if attributes of processes cannot be set
	// namespaces has the labels of namespaces; nil if they are unknown.
	namespaces *namespaces.Store
	// makes means that the agent makes directories on the host for containers. If it is false, such
	// directories count as made.
	makes bool
}

// nodeOf returns the node of an agent with these options.
func nodeOf(o Options) node {
	n := node{tree: o.Tree, resctrl: o.Resctrl, cookies: o.Cookies, processes: o.Processes, devices: hostOf(o.Config.Paths), deviceAt: deviceOf(o.Config.Paths), hookFiles: hooksd.Read}
	if o.Host != nil {
		n.deviceAt, n.hookFiles = nil, nil
		n.devices = func() (lifecycle.Host, error) { return *o.Host, nil }
	}
	return n
}

// Host reads the node's devices. It leaves out devices that cannot be read.
func (n node) Host() lifecycle.Host {
	if n.devices == nil {
		return lifecycle.Host{}
	}
	h, _ := n.devices() // the patterns are constants and valid
	return h
}

// Device finds a device of the node by its path.
func (n node) Device(path string) (d lifecycle.Device, found bool) {
	if n.deviceAt != nil {
		return n.deviceAt(path)
	}
	d, found = n.Host().Devices[path]
	return d, found
}

// probeDelegation reports whether the kernel prevents containers from changing the limits of their own
// cgroups. The mount option nsdelegate enables that for all mounts of cgroup version 2.
func (n node) probeDelegation() lifecycle.Finding {
	if n.hookFiles == nil { // the node is described by a text
		return lifecycle.Finding{Support: lifecycle.Supported}
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return lifecycle.Finding{Why: err.Error()}
	}
	if !n.Unified() || !delegated(string(text)) {
		return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "cgroup version 2 is not mounted with nsdelegate"}
	}
	return lifecycle.Finding{Support: lifecycle.Supported}
}

// delegated reports whether a cgroup mount has the option nsdelegate. Format: proc(5), mountinfo.
func delegated(mountinfo string) bool {
	for line := range strings.Lines(mountinfo) {
		_, super, _ := strings.Cut(line, " - ")
		if f := strings.Fields(super); len(f) == 3 && f[0] == "cgroup2" && slices.Contains(strings.Split(f[2], ","), "nsdelegate") {
			return true
		}
	}
	return false
}

// HookFiles reads the files in directories of OCI hooks.
func (n node) HookFiles(directories []string) []lifecycle.HookFile {
	if n.hookFiles != nil {
		return n.hookFiles(directories)
	}
	return n.Host().HookFiles
}

// Probe reports whether the node has a feature.
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

// Unified reports whether the node has cgroup version 2. It is true if the version is unknown.
func (n node) Unified() bool { return n.tree == nil || n.tree.Version == cgroup.V2 }

// MakeShared makes a directory to which containers of any user may write.
func (n node) MakeShared(path string) error {
	if !n.makes {
		return nil
	}
	return makeShared(path)
}

// hostOf reads the devices below the configured directories.
func hostOf(p config.Paths) func() (lifecycle.Host, error) {
	return func() (lifecycle.Host, error) { return sysfs.Host(os.DirFS(p.Dev), os.DirFS(p.Sys)) }
}

// deviceOf finds devices below the configured directory.
func deviceOf(p config.Paths) func(string) (lifecycle.Device, bool) {
	return func(path string) (lifecycle.Device, bool) { return sysfs.Device(os.DirFS(p.Dev), path) }
}

// probeDevice reports whether a device node with a name prefix and a number exists.
func (n node) probeDevice(prefix string) lifecycle.Finding {
	for path := range n.Host().Devices {
		if number, ok := strings.CutPrefix(path, prefix); ok && strings.Trim(number, "0123456789") == "" && number != "" {
			return lifecycle.Finding{Support: lifecycle.Supported}
		}
	}
	return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "there is no " + prefix + "*"}
}

// Effective returns for each hook of the catalogue whether it can take effect on a node with this cgroup
// tree and with the devices below these directories.
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
