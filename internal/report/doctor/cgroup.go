package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// tops are the directories in which the kubelet keeps pods, by driver.
var tops = []struct{ dir, driver string }{{"kubepods.slice", "systemd"}, {"kubepods", "cgroupfs"}}

// cgroups has a node's cgroup files, and the part of the configuration about them.
type cgroups struct {
	host
	config.Cgroup
}

// version reports which cgroup version the node has.
func (g cgroups) version() (cgroup.Version, error) {
	if _, err := g.stat(g.Root); err != nil {
		return 0, err
	}
	switch _, err := g.stat(g.at("cgroup.controllers")); {
	case err == nil:
		return cgroup.V2, nil
	case !missing(err):
		return 0, err
	}
	for _, c := range []string{"cpuset", "cpu", "memory"} {
		if _, err := g.stat(g.at(c)); err == nil {
			return cgroup.V1, nil
		}
	}
	return 0, fs.ErrNotExist
}

func (g cgroups) at(parts ...string) string {
	return path.Join(append([]string{g.Root}, parts...)...)
}

// file returns the path of a file in a pod directory.
func (g cgroups) file(v cgroup.Version, dir string, f cgroup.File) string {
	if v == cgroup.V1 {
		return g.at(f.Controller, dir, f.Name)
	}
	return g.at(dir, f.Name)
}

// driver returns the directory of all pods, and the driver that uses this name. both means that the directories of
// both drivers exist.
func (g cgroups) driver(v cgroup.Version) (dir, driver string, both bool) {
	above := ""
	if v == cgroup.V1 {
		above = "cpu"
	}
	for _, t := range tops {
		if _, err := g.stat(g.at(above, t.dir)); err == nil {
			if dir != "" {
				return dir, driver, true
			}
			dir, driver = t.dir, t.driver
		}
	}
	return dir, driver, false
}

func checkCgroup(c Check, g cgroups) Check {
	root := g.Root
	v, err := g.version()
	switch {
	case missing(err):
		return c.problem("mount it there, or set cgroup.root", "no cgroup file system at %s", root)
	case err != nil:
		return c.unseen(root, err)
	}
	if want := g.Version; want != "auto" && want != v.String() {
		return c.problem("set cgroup.version: auto", "version %s at %s, but cgroup.version is %s", strings.TrimPrefix(v.String(), "v"), root, want)
	}
	var fs unix.Statfs_t
	if at, err := g.real(g.at()); err == nil && unix.Statfs(at, &fs) == nil && v == cgroup.V2 && fs.Flags&unix.ST_RDONLY != 0 {
		return c.problem("mount it writable for the agent", "%s is mounted read-only", root)
	}
	version := "version " + strings.TrimPrefix(v.String(), "v")
	dir, driver, both := g.driver(v)
	switch {
	case both:
		return c.problem("drain and restart the node, so that only the directories of the kubelet's cgroupDriver are left",
			"%s; both kubepods.slice and kubepods exist, left by a change of the cgroup driver", version)
	case dir == "":
		return c.unknown("start the kubelet", "%s; the driver is unknown until the kubelet has created its directory (kubepods)", version)
	}
	return c.ok("%s, %s driver (%s)", version, driver, dir)
}

// checkHooks checks for each hook whether the kernel has what the hook needs.
func checkHooks(g cgroups, config config.Config) []Check {
	v, versionErr := g.version()
	dir, _, _ := g.driver(v)
	var out []Check
	for _, h := range config.Hooks.Catalogue() {
		c := Check{Name: "hook " + h.Name, Why: "without it, pods do not get this: " + h.About}
		needs, lacks := files(h, v), g.lacksDevice(config.Paths, h)
		switch {
		case !config.Hooks.Enabled(h.Name):
			c = c.ok("disabled (hooks.%s.enabled)", h.Name)
		case lacks != "":
			c = c.problem("install the device's driver, mount the missing path, or disable the hook", "not effective: there is no %s", lacks)
		case slices.Contains(h.Kernel, "coreSched"):
			c = c.unknown("run trimtab hooks on the node itself; it asks the kernel", "no file shows whether the kernel supports core scheduling cookies")
		case len(controllers(h)) == 0:
			c = c.ok("effective: it needs nothing from the kernel")
		case versionErr != nil:
			c = c.unknown("see the check cgroup", "it needs the controllers %s; no cgroup file system was found", join(controllers(h)))
		default:
			if c = g.probe(c, v, dir, needs); c.Result == OK {
				c = g.probeFeatures(c, v, dir, h)
			}
		}
		out = append(out, c)
	}
	return out
}

// lacksDevice returns a file that a hook needs and that the node lacks, if that is not a cgroup file, or "".
func (h host) lacksDevice(paths config.Paths, info hook.Info) string {
	for feature, at := range map[string]string{
		"nvidia":         path.Join(paths.Dev, "nvidiactl"),
		"rdma":           path.Join(paths.Dev, "infiniband/rdma_cm"),
		"resctrl":        path.Join(paths.Resctrl, "schemata"),
		"resctrl.L3_MON": path.Join(paths.Resctrl, "info/L3_MON"),
	} {
		if _, err := h.stat(at); slices.Contains(info.Kernel, feature) && missing(err) {
			return at
		}
	}
	return ""
}

// probeFeatures looks for cgroup files that not every kernel has. If several files are alternatives, one is enough.
func (g cgroups) probeFeatures(c Check, v cgroup.Version, dir string, h hook.Info) Check {
	for _, need := range h.Kernel {
		if !strings.Contains(need, ".") {
			continue
		}
		found := false
		for name := range strings.SplitSeq(need, "|") {
			f, err := cgroup.FeatureFile(name, v)
			if err == nil && f.Name != "" {
				_, err = g.stat(g.file(v, dir, f))
			}
			found = found || err == nil
		}
		if !found {
			advice := "use a kernel that has it, or disable the hook"
			if h.Instead != "" {
				advice += "; " + h.Instead
			}
			return c.problem(advice,
				"not effective: this kernel has no %s", strings.ReplaceAll(need, "|", " or "))
		}
	}
	return c
}

// files returns the kernel files of the fields that a hook sets.
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
		// The existence of a file shows whether the kernel has it. Here only its controller matters.
		if f, err := cgroup.FeatureFile(need, v); err == nil && slices.Contains(kernelControllers, f.Controller) {
			out = append(out, cgroup.File{Controller: f.Controller})
		}
	}
	return out
}

// kernelControllers are those of the features hooks need that are controllers.
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
func (g cgroups) probe(c Check, v cgroup.Version, dir string, needs []cgroup.File) Check {
	var seen []string
	for _, f := range needs {
		why, err := g.lacks(v, dir, f.Controller)
		switch {
		case err != nil:
			return c.unseen("the controller "+f.Controller, err)
		case why != "":
			return c.problem(enable(v, f.Controller), "not effective: %s", why)
		}
		if dir == "" || f.Name == "" {
			continue
		}
		at := g.file(v, dir, f)
		if _, err := g.stat(at); missing(err) {
			return c.problem("use a kernel that has it, or disable the hook", "not effective: this kernel has no %s", at)
		} else if err != nil {
			return c.unseen(at, err)
		}
		if !slices.Contains(seen, f.Name) {
			seen = append(seen, f.Name)
		}
	}
	if dir == "" {
		return c.unknown("start the kubelet", "the controllers exist; the files are visible after the kubelet has created its directory (kubepods)")
	}
	return c.ok("effective: %s exist", join(seen))
}

// lacks says what a controller lacks in the pods' directory.
func (g cgroups) lacks(v cgroup.Version, dir, controller string) (string, error) {
	if v == cgroup.V1 {
		_, err := g.stat(g.at(controller))
		if missing(err) {
			return fmt.Sprintf("the controller %s is not mounted at %s", controller, g.at(controller)), nil
		}
		return "", err
	}
	lists := []struct{ file, say string }{
		{g.at("cgroup.controllers"), "this kernel, or its boot parameters, has no controller %s"},
		{g.at("cgroup.subtree_control"), "the controller %s is not enabled below the root"},
	}
	if dir != "" {
		lists = append(lists, struct{ file, say string }{g.at(dir, "cgroup.subtree_control"), "the controller %s is not enabled for pods"})
	}
	for _, l := range lists {
		text, err := g.read(l.file)
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
		return "mount it, or disable the hook"
	}
	return fmt.Sprintf("have systemd or the kubelet pass %s on (cgroup.subtree_control), look for cgroup_disable= in the boot parameters, or switch the hook off", controller)
}
