package doctor

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// tops are the directories the kubelet keeps pods in, by driver.
var tops = []struct{ dir, driver string }{{"kubepods.slice", "systemd"}, {"kubepods", "cgroupfs"}}

// version tells which cgroup version the node has.
func (n *node) version() (cgroup.Version, error) {
	if _, err := n.host.stat(n.config.Cgroup.Root); err != nil {
		return 0, err
	}
	switch _, err := n.host.stat(n.cgroup("cgroup.controllers")); {
	case err == nil:
		return cgroup.V2, nil
	case !missing(err):
		return 0, err
	}
	for _, c := range []string{"cpuset", "cpu", "memory"} {
		if _, err := n.host.stat(n.cgroup(c)); err == nil {
			return cgroup.V1, nil
		}
	}
	return 0, fs.ErrNotExist
}

func (n *node) cgroup(parts ...string) string {
	return path.Join(append([]string{n.config.Cgroup.Root}, parts...)...)
}

// driver returns the directory of all pods, and which driver names it so.
func (n *node) driver(v cgroup.Version) (dir, driver string, both bool) {
	above := ""
	if v == cgroup.V1 {
		above = "cpu"
	}
	for _, t := range tops {
		if _, err := n.host.stat(n.cgroup(above, t.dir)); err == nil {
			if dir != "" {
				return dir, driver, true
			}
			dir, driver = t.dir, t.driver
		}
	}
	return dir, driver, false
}

func (n *node) checkCgroup() Check {
	c := Check{Name: "cgroup", Why: "values are written into the kernel's cgroup files; their version and the names of pods' directories say where"}
	root := n.config.Cgroup.Root
	v, err := n.version()
	switch {
	case missing(err):
		return c.problem("mount it there, or set cgroup.root", "no cgroup file system at %s", root)
	case err != nil:
		return c.unseen(root, err)
	}
	if want := n.config.Cgroup.Version; want != "auto" && want != v.String() {
		return c.problem("set cgroup.version: auto", "version %s at %s, but cgroup.version is %s", strings.TrimPrefix(v.String(), "v"), root, want)
	}
	var fs unix.Statfs_t
	if at, err := n.host.real(n.cgroup()); err == nil && unix.Statfs(at, &fs) == nil && v == cgroup.V2 && fs.Flags&unix.ST_RDONLY != 0 {
		return c.problem("mount it writable for the agent", "%s is mounted read-only", root)
	}
	version := "version " + strings.TrimPrefix(v.String(), "v")
	dir, driver, both := n.driver(v)
	switch {
	case both:
		return c.problem("drain and restart the node, so that only what the kubelet's cgroupDriver makes is left",
			"%s; both kubepods.slice and kubepods are there, left by a change of the cgroup driver", version)
	case dir == "":
		return c.unknown("start the kubelet", "%s; the driver shows when the kubelet has made its directory (kubepods)", version)
	}
	return c.ok("%s, %s driver (%s)", version, driver, dir)
}

// enabled reports what the configuration says of a hook.
func (n *node) enabled(name string) bool {
	text, err := json.Marshal(n.config.Hooks)
	if err != nil {
		return true
	}
	var hooks map[string]struct {
		Enabled *bool `json:"enabled"`
	}
	if json.Unmarshal(text, &hooks) != nil || hooks[name].Enabled == nil {
		return true
	}
	return *hooks[name].Enabled
}

// checkHooks says of each hook whether the kernel has what it needs.
func (n *node) checkHooks() []Check {
	v, versionErr := n.version()
	dir, _, _ := n.driver(v)
	var out []Check
	for _, h := range hook.Catalogue() {
		h = n.asConfigured(h)
		c := Check{Name: "hook " + h.Name, Why: "where it has no effect, pods go without this: " + h.About}
		needs := files(h, v)
		switch {
		case !n.enabled(h.Name):
			c = c.ok("switched off (hooks.%s.enabled)", h.Name)
		case n.lacksDevice(h) != "":
			c = c.problem("install the device's driver, or mount what is missing, or switch the hook off", "not effective: there is no %s", n.lacksDevice(h))
		case slices.Contains(h.Kernel, "coreSched"):
			c = c.unknown("trimtab hooks, on the node itself, asks the kernel", "whether the kernel gives core scheduling cookies shows in no file")
		case len(controllers(h)) == 0:
			c = c.ok("effective: it needs nothing of the kernel")
		case versionErr != nil:
			c = c.unknown("see the check cgroup", "it needs the controllers %s; no cgroup file system was seen", join(controllers(h)))
		default:
			if c = n.probe(c, v, dir, needs); c.Result == OK {
				c = n.probeFeatures(c, v, dir, h)
			}
		}
		out = append(out, c)
	}
	return out
}

// asConfigured returns a hook as the configuration has it, where what it needs
// depends on that.
func (n *node) asConfigured(h hook.Info) hook.Info {
	switch h.Name {
	case "groupIdentity":
		return hook.GroupIdentity{Fallback: hook.FallbackOf(n.config.Hooks.GroupIdentity.Fallback)}.Info()
	case "gpu":
		if n.config.Hooks.GPU.Devices == "nodes" {
			return hook.GPU{Devices: hook.ByNode}.Info()
		}
	}
	return h
}

// lacksDevice returns a file other than a cgroup's that a hook needs and the
// node lacks, or "".
func (n *node) lacksDevice(h hook.Info) string {
	for feature, at := range map[string]string{
		"nvidia":         path.Join(n.config.Paths.Dev, "nvidiactl"),
		"rdma":           path.Join(n.config.Paths.Dev, "infiniband/rdma_cm"),
		"resctrl":        path.Join(n.config.Paths.Resctrl, "schemata"),
		"resctrl.L3_MON": path.Join(n.config.Paths.Resctrl, "info/L3_MON"),
	} {
		if _, err := n.host.stat(at); slices.Contains(h.Kernel, feature) && missing(err) {
			return at
		}
	}
	return ""
}

// probeFeatures looks for cgroup files that not every kernel has; of
// alternatives one is enough.
func (n *node) probeFeatures(c Check, v cgroup.Version, dir string, h hook.Info) Check {
	for _, need := range h.Kernel {
		if !strings.Contains(need, ".") {
			continue
		}
		found := false
		for name := range strings.SplitSeq(need, "|") {
			f, err := cgroup.FeatureFile(name, v)
			if err == nil && f.Name != "" {
				at := n.cgroup(dir, f.Name)
				if v == cgroup.V1 {
					at = n.cgroup(f.Controller, dir, f.Name)
				}
				_, err = n.host.stat(at)
			}
			found = found || err == nil
		}
		if !found {
			return c.problem("use a kernel that has it, or see the hook's fallback, or switch the hook off",
				"not effective: this kernel has no %s", strings.ReplaceAll(need, "|", " or "))
		}
	}
	return c
}

// files are the kernel files of the fields a hook sets.
func files(h hook.Info, v cgroup.Version) []cgroup.File {
	var out []cgroup.File
	for _, f := range slices.Concat(h.Sets, h.Pod) {
		s, err := cgroup.Find(f, "")
		if f == lifecycle.Unified || err != nil {
			continue
		}
		file := s.V2
		if v == cgroup.V1 {
			file = s.V1
		}
		if !slices.Contains(out, file) {
			out = append(out, file)
		}
	}
	for _, need := range h.Kernel {
		// A file shows by itself whether the kernel has it; here what counts is
		// its controller.
		if f, err := cgroup.FeatureFile(need, v); err == nil && slices.Contains(kernelControllers, f.Controller) {
			out = append(out, cgroup.File{Controller: f.Controller})
		}
	}
	return out
}

// kernelControllers are the controllers among the features hooks need.
var kernelControllers = []string{"cpu", "cpuset", "memory", "io", "blkio", "hugetlb"}

func controllers(h hook.Info) []string {
	var out []string
	for _, f := range files(h, cgroup.V2) {
		if !slices.Contains(out, f.Controller) {
			out = append(out, f.Controller)
		}
	}
	return out
}

// probe looks for the controllers, then for the files in the pods' directory.
func (n *node) probe(c Check, v cgroup.Version, dir string, needs []cgroup.File) Check {
	var seen []string
	for _, f := range needs {
		why, err := n.lacks(v, dir, f.Controller)
		switch {
		case err != nil:
			return c.unseen("the controller "+f.Controller, err)
		case why != "":
			return c.problem(enable(v, f.Controller), "not effective: %s", why)
		}
		if dir == "" || f.Name == "" {
			continue
		}
		at := n.cgroup(dir, f.Name)
		if v == cgroup.V1 {
			at = n.cgroup(f.Controller, dir, f.Name)
		}
		if _, err := n.host.stat(at); missing(err) {
			return c.problem("use a kernel that has it, or switch the hook off", "not effective: this kernel has no %s", at)
		} else if err != nil {
			return c.unseen(at, err)
		}
		if !slices.Contains(seen, f.Name) {
			seen = append(seen, f.Name)
		}
	}
	if dir == "" {
		return c.unknown("start the kubelet", "the controllers are there; the files show when the kubelet has made its directory (kubepods)")
	}
	return c.ok("effective: %s are there", join(seen))
}

// lacks says what is missing of a controller for the pods' directory.
func (n *node) lacks(v cgroup.Version, dir, controller string) (string, error) {
	if v == cgroup.V1 {
		_, err := n.host.stat(n.cgroup(controller))
		if missing(err) {
			return fmt.Sprintf("the controller %s is not mounted at %s", controller, n.cgroup(controller)), nil
		}
		return "", err
	}
	lists := []struct{ file, say string }{
		{n.cgroup("cgroup.controllers"), "this kernel, or its boot parameters, has no controller %s"},
		{n.cgroup("cgroup.subtree_control"), "the controller %s is not passed on below the root"},
	}
	if dir != "" {
		lists = append(lists, struct{ file, say string }{n.cgroup(dir, "cgroup.subtree_control"), "the controller %s is not passed on to pods"})
	}
	for _, l := range lists {
		text, err := n.host.read(l.file)
		if err != nil {
			return "", err
		}
		if !slices.Contains(strings.Fields(string(text)), controller) {
			return fmt.Sprintf(l.say+" (%s)", controller, l.file), nil
		}
	}
	return "", nil
}

func enable(v cgroup.Version, controller string) string {
	if v == cgroup.V1 {
		return "mount it, or switch the hook off"
	}
	return fmt.Sprintf("have systemd or the kubelet pass %s on (cgroup.subtree_control), look for cgroup_disable= in the boot parameters, or switch the hook off", controller)
}
