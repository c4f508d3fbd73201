package doctor

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// podsDirs are the directories in which the kubelet creates the cgroups of pods, by cgroup driver.
var podsDirs = []struct{ dir, driver string }{{"kubepods.slice", "systemd"}, {"kubepods", "cgroupfs"}}

// cgroups has the file tree of a node, and the configuration of its cgroups.
type cgroups struct {
	host
	config.Cgroup
}

// version returns the node's cgroup version.
func (g cgroups) version() (cgroup.Version, error) {
	at, err := g.realPath(g.Root)
	if err != nil {
		return 0, err
	}
	tree, err := cgroup.OpenRoot(at)
	if err != nil {
		return 0, err
	}
	defer tree.Close()
	return cgroup.Detect(tree)
}

// pathOf returns the path of a file or directory below the root of the cgroup tree.
func (g cgroups) pathOf(parts ...string) string {
	return path.Join(append([]string{g.Root}, parts...)...)
}

// file returns the path of a cgroup file in dir, the cgroup directory in which the kubelet creates the cgroups of pods.
func (g cgroups) file(v cgroup.Version, dir string, f cgroup.File) string {
	if v == cgroup.V1 {
		return g.pathOf(f.Controller, dir, f.Name)
	}
	return g.pathOf(dir, f.Name)
}

// podsDirAndDriver returns the cgroup directory in which the kubelet creates the cgroups of pods, and the name of the
// cgroup driver that uses this directory. The result both is true if the directories of both cgroup drivers exist.
func (g cgroups) podsDirAndDriver(v cgroup.Version) (dir, driver string, both bool) {
	above := ""
	if v == cgroup.V1 {
		above = "cpu"
	}
	for _, t := range podsDirs {
		if _, err := g.stat(g.pathOf(above, t.dir)); err == nil {
			if dir != "" {
				return dir, driver, true
			}
			dir, driver = t.dir, t.driver
		}
	}
	return dir, driver, false
}

// checkCgroup checks the version and the mount of the cgroup file system, and the directory in which the kubelet
// creates the cgroups of pods.
func checkCgroup(c Check, g cgroups) Check {
	root := g.Root
	v, err := g.version()
	switch {
	case isMissing(err):
		return c.problem("mount the cgroup file system there, or set cgroup.root", "no cgroup file system at %s", root)
	case err != nil:
		return c.unreadable(root, err)
	}
	if want := g.Version; want != "auto" && want != v.String() {
		return c.problem("set cgroup.version: auto", "the cgroup version is %s at %s, but the key cgroup.version is %s", strings.TrimPrefix(v.String(), "v"), root, want)
	}
	var fs unix.Statfs_t
	if at, err := g.realPath(g.pathOf()); err == nil && unix.Statfs(at, &fs) == nil && v == cgroup.V2 && fs.Flags&unix.ST_RDONLY != 0 {
		return c.problem("mount it with write access for the agent", "%s is mounted read-only", root)
	}
	version := "version " + strings.TrimPrefix(v.String(), "v")
	dir, driver, both := g.podsDirAndDriver(v)
	switch {
	case both:
		return c.problem("drain and restart the node, so that only the directories of the kubelet's cgroupDriver are left",
			"%s; both kubepods.slice and kubepods exist, left by a change of the cgroup driver", version)
	case dir == "":
		return c.unknown("start the kubelet", "%s; the cgroup driver is unknown until the kubelet has created its directory (kubepods)", version)
	}
	return c.ok("%s, %s driver (%s)", version, driver, dir)
}

// checkHooks checks for each hook whether the kernel has what the hook needs.
func checkHooks(g cgroups, config config.Config) []Check {
	v, versionErr := g.version()
	dir, _, _ := g.podsDirAndDriver(v)
	var out []Check
	for _, h := range config.Hooks.Catalogue() {
		c := Check{Name: "hook " + h.Name, Why: "without this hook, pods do not get: " + h.About}
		needs, lacks := filesOf(h, v), g.missingDevice(config.Paths, h)
		switch {
		case !config.Hooks.Enabled(h.Name):
			c = c.ok("disabled (hooks.%s.enabled)", h.Name)
		case lacks != "":
			c = c.problem("install the device's driver, mount the missing path, or disable the hook", "not effective: there is no %s", lacks)
		case slices.Contains(h.KernelFeatures, "coreSched"):
			c = c.unknown("run trimtab hooks on the node itself, because only the kernel can answer", "no file shows whether the kernel supports core scheduling cookies")
		case len(controllers(h)) == 0:
			c = c.ok("effective: the hook needs nothing from the kernel")
		case versionErr != nil:
			c = c.unknown(`see the result of the check "cgroup"`, "the hook needs the controllers %s; no cgroup file system was found", join(controllers(h)))
		default:
			if c = g.checkFiles(c, v, dir, needs); c.Result == OK {
				c = g.checkFeatureFiles(c, v, dir, h)
			}
		}
		out = append(out, c)
	}
	return out
}

// missingDevice returns a device or resctrl file that a hook needs and that does not exist. It returns "" if no needed
// file is missing.
func (h host) missingDevice(paths config.Paths, info hook.Info) string {
	for feature, at := range map[string]string{
		"nvidia":         path.Join(paths.Dev, "nvidiactl"),
		"rdma":           path.Join(paths.Dev, "infiniband/rdma_cm"),
		"resctrl":        path.Join(paths.Resctrl, "schemata"),
		"resctrl.L3_MON": path.Join(paths.Resctrl, "info/L3_MON"),
	} {
		if _, err := h.stat(at); slices.Contains(info.KernelFeatures, feature) && isMissing(err) {
			return at
		}
	}
	return ""
}

// checkFeatureFiles checks that the kernel has the cgroup files that a hook needs. It checks only files that some
// kernels lack. If a hook needs one of several files, one of them is enough.
func (g cgroups) checkFeatureFiles(c Check, v cgroup.Version, dir string, h hook.Info) Check {
	exists := func(feature string) bool {
		f, err := cgroup.FeatureFile(feature, v)
		if err == nil && f.Name != "" {
			_, err = g.stat(g.file(v, dir, f))
		}
		return err == nil
	}
	for _, need := range h.KernelFeatures {
		if strings.Contains(need, ".") && !slices.ContainsFunc(strings.Split(need, "|"), exists) {
			advice := "use a kernel that has the file, or disable the hook"
			if h.FallbackOption != "" {
				advice += "; " + h.FallbackOption
			}
			return c.problem(advice, "not effective: this kernel has no %s", strings.ReplaceAll(need, "|", " or "))
		}
	}
	return c
}

// filesOf returns the cgroup files that a hook writes, one for each field that the hook sets. If the hook needs another
// cgroup file, filesOf adds the controller of this file, without the file's name.
func filesOf(h hook.Info, v cgroup.Version) []cgroup.File {
	var out []cgroup.File
	for _, f := range slices.Concat(h.Sets, h.SetsOnPod) {
		s, err := cgroup.FindSetting(f, "")
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
	for _, need := range h.KernelFeatures {
		// Here only the controller of the file matters: checkFeatureFiles checks later whether the file exists.
		if f, err := cgroup.FeatureFile(need, v); err == nil && slices.Contains(kernelControllers, f.Controller) {
			out = append(out, cgroup.File{Controller: f.Controller})
		}
	}
	return out
}

// kernelControllers are the cgroup controllers of the files that a hook can name as a needed kernel feature. The other
// kernel features, such as devices, need no controller.
var kernelControllers = []string{"cpu", "cpuset", "memory", "io", "blkio", "hugetlb"}

// controllers returns the cgroup controllers that a hook needs.
func controllers(h hook.Info) []string {
	var out []string
	for _, f := range filesOf(h, cgroup.V2) {
		if !slices.Contains(out, f.Controller) {
			out = append(out, f.Controller)
		}
	}
	return out
}

// checkFiles checks, for the cgroup files in needs, whether the controllers of these files are enabled. It then checks
// whether the files exist in dir, the cgroup directory of the kubelet's pods. An entry without a file name has only a
// controller.
func (g cgroups) checkFiles(c Check, v cgroup.Version, dir string, needs []cgroup.File) Check {
	var seen []string
	for _, f := range needs {
		why, err := g.controllerProblem(v, dir, f.Controller)
		switch {
		case err != nil:
			return c.unreadable("the controller "+f.Controller, err)
		case why != "":
			return c.problem(enableAdvice(v, f.Controller), "not effective: %s", why)
		}
		if dir == "" || f.Name == "" {
			continue
		}
		at := g.file(v, dir, f)
		if _, err := g.stat(at); isMissing(err) {
			return c.problem("use a kernel that has the file, or disable the hook", "not effective: this kernel has no %s", at)
		} else if err != nil {
			return c.unreadable(at, err)
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

// controllerProblem returns why a controller cannot be used for pods, or "" if it can be used.
func (g cgroups) controllerProblem(v cgroup.Version, dir, controller string) (string, error) {
	if v == cgroup.V1 {
		_, err := g.stat(g.pathOf(controller))
		if isMissing(err) {
			return fmt.Sprintf("the controller %s is not mounted at %s", controller, g.pathOf(controller)), nil
		}
		return "", err
	}
	lists := []struct{ file, say string }{
		{g.pathOf("cgroup.controllers"), "this kernel, or its boot parameters, has no controller %s"},
		{g.pathOf("cgroup.subtree_control"), "the controller %s is not enabled below the root"},
	}
	if dir != "" {
		lists = append(lists, struct{ file, say string }{g.pathOf(dir, "cgroup.subtree_control"), "the controller %s is not enabled for pods"})
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

// enableAdvice returns the advice for a controller that cannot be used.
func enableAdvice(v cgroup.Version, controller string) string {
	if v == cgroup.V1 {
		return "mount the controller, or disable the hook"
	}
	return fmt.Sprintf("enable %[1]s in cgroup.subtree_control (usually systemd or the kubelet does so), remove %[1]s from cgroup_disable= in the boot parameters, or disable the hook", controller)
}
