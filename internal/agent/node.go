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

// node implements hook.Node: it has the features of the kernel and the devices of the machine.
type node struct {
	tree *cgroup.Tree
	// devices reads the node's devices. nil means that the node has no devices.
	devices func() (lifecycle.Host, error)
	// deviceAt finds a device of the node by its path. nil means that the method Device instead searches the devices
	// that the function devices returns.
	deviceAt func(path string) (lifecycle.Device, bool)
	// hookFiles reads the files in directories of OCI hooks. nil means that the method HookFiles instead returns the
	// hook files of the Host that the function devices returns.
	hookFiles func(directories []string) []lifecycle.HookFile
	cdi       *cdiSpecs        // the devices in the node's CDI specifications
	resctrl   resctrl.FS       // nil if the node has none
	cookies   coresched.Kernel // nil if core scheduling is not available
	processes process.Kernel   // nil if attributes of processes cannot be set
	// namespaces has the labels of namespaces; nil if they are unknown.
	namespaces *namespaces.Store
	// createsDirs reports whether MakeSharedDir makes directories on the host. If it is false, MakeSharedDir does
	// nothing.
	createsDirs bool
}

// nodeOf returns the node of an agent with these options.
func nodeOf(o Options) node {
	n := node{tree: o.Tree, resctrl: o.Resctrl, cookies: o.Cookies, processes: o.Processes, devices: hostOf(o.Config.Paths), deviceAt: deviceOf(o.Config.Paths), hookFiles: hooksd.Read, cdi: cdiSpecsOf(o)}
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
	h, _ := n.devices() // no error: the search patterns are valid, and the function leaves out devices that it cannot read
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

// probeDelegation reports whether the kernel prevents containers from changing the limits of their own cgroups. The
// kernel does so if cgroup version 2 is mounted with the option nsdelegate.
func (n node) probeDelegation() lifecycle.Finding {
	if n.hookFiles == nil { // the node is simulated
		return lifecycle.Finding{Support: lifecycle.Supported}
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return lifecycle.Finding{Why: err.Error()}
	}
	if !n.Unified() || !hasNSDelegate(string(text)) {
		return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "cgroup version 2 is not mounted with nsdelegate"}
	}
	return lifecycle.Finding{Support: lifecycle.Supported}
}

// hasNSDelegate reports whether a cgroup2 mount in /proc/PID/mountinfo (proc(5)) has the option nsdelegate.
func hasNSDelegate(mountinfo string) bool {
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
	case strings.HasPrefix(feature, resctrl.FeatureMounted):
		return resctrl.Probe(n.resctrl, feature)
	case n.tree == nil:
		return lifecycle.Finding{Why: "no cgroup tree was opened"}
	}
	return n.tree.Probe(feature)
}

// Unified reports whether the node has cgroup version 2. It returns true if the version is unknown.
func (n node) Unified() bool { return n.tree == nil || n.tree.Version == cgroup.V2 }

// MakeSharedDir makes a directory to which containers of any user can write.
func (n node) MakeSharedDir(path string) error {
	if !n.createsDirs {
		return nil
	}
	return makeSharedDir(path)
}

// hostOf returns a function that reads the node's devices from the directories paths.dev and paths.sys.
func hostOf(p config.Paths) func() (lifecycle.Host, error) {
	return func() (lifecycle.Host, error) { return sysfs.ReadHost(os.DirFS(p.Dev), os.DirFS(p.Sys)) }
}

// deviceOf returns a function that finds a device by its path, in the directory paths.dev.
func deviceOf(p config.Paths) func(string) (lifecycle.Device, bool) {
	return func(path string) (lifecycle.Device, bool) { return sysfs.ReadDevice(os.DirFS(p.Dev), path) }
}

// probeDevice reports whether a device node exists whose path is the prefix and a number.
func (n node) probeDevice(prefix string) lifecycle.Finding {
	for path := range n.Host().Devices {
		if number, ok := strings.CutPrefix(path, prefix); ok && strings.Trim(number, "0123456789") == "" && number != "" {
			return lifecycle.Finding{Support: lifecycle.Supported}
		}
	}
	return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "there is no " + prefix + "*"}
}

// ProbeHooks reports for each hook whether it can take effect on this node, with the given cgroup tree and the devices
// in the given directories.
func ProbeHooks(tree *cgroup.Tree, p config.Paths, hooks []hook.Info) []api.Hook {
	n := node{tree: tree, devices: hostOf(p), cookies: coresched.Real{}}
	if files, err := resctrl.OpenRoot(p.Resctrl); err == nil {
		defer files.Close()
		n.resctrl = files
	}
	var out []api.Hook
	for _, h := range hooks {
		out = append(out, api.Hook{Name: h.Name, Finding: h.FeatureSupport(n.Probe)})
	}
	return out
}
