// Package host finds the cgroup hierarchies of the test machine, and removes the processes, mounts and cgroups of one
// test. It removes nothing outside of the test's private directory and private cgroup.
package host

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Hierarchy is one mounted cgroup tree.
type Hierarchy struct {
	Mount       string   // the mount point
	Controllers []string // v1: the controllers of the mount; v2: the controllers of the root cgroup
	Unified     bool     // the hierarchy is cgroup v2
}

// Hierarchies returns the cgroup hierarchies that are mounted for this process. A hierarchy with several mounts counts
// once.
func Hierarchies() ([]Hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found, err := parseMounts(f)
	if err != nil {
		return nil, err
	}
	for i, h := range found {
		if h.Unified {
			offered, err := os.ReadFile(filepath.Join(h.Mount, "cgroup.controllers"))
			if err != nil {
				return nil, err
			}
			found[i].Controllers = strings.Fields(string(offered))
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted")
	}
	return found, nil
}

// parseMounts returns the cgroup hierarchies in the text of /proc/self/mountinfo, without the controllers of cgroup v2.
func parseMounts(mountinfo io.Reader) ([]Hierarchy, error) {
	var found []Hierarchy
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		mount, source, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(mount), strings.Fields(source)
		if !ok || len(left) < 5 || len(right) < 3 || left[3] != "/" {
			continue
		}
		h := Hierarchy{Mount: left[4], Unified: right[0] == "cgroup2"}
		if right[0] == "cgroup" {
			h.Controllers = controllers(right[2])
		} else if !h.Unified {
			continue
		}
		same := func(o Hierarchy) bool { return o.Unified == h.Unified && slices.Equal(o.Controllers, h.Controllers) }
		if !slices.ContainsFunc(found, same) {
			found = append(found, h)
		}
	}
	return found, lines.Err()
}

// controllers returns the controllers in the super-block options of a v1 mount, and the name of a named hierarchy, such
// as name=systemd.
func controllers(options string) []string {
	var found []string
	for option := range strings.SplitSeq(options, ",") {
		switch {
		case option == "rw", option == "ro", option == "xattr", option == "noprefix", option == "clone_children":
		case strings.HasPrefix(option, "release_agent="):
		default:
			found = append(found, option)
		}
	}
	return found
}

// HierarchyFor returns the hierarchy that has a controller.
func HierarchyFor(all []Hierarchy, controller string) (Hierarchy, error) {
	for _, h := range all {
		if slices.Contains(h.Controllers, controller) {
			return h, nil
		}
	}
	return Hierarchy{}, fmt.Errorf("no mounted cgroup hierarchy has the controller %s", controller)
}

// MakeCgroup creates a cgroup and its missing parents in every hierarchy with controllers, so that processes can enter the
// cgroup. In v1, a new cpuset gets the CPUs and memory nodes of its parent, because it would otherwise be empty. In v2,
// MakeCgroup enables the controllers in the parents.
func MakeCgroup(all []Hierarchy, cgroup string) error {
	for _, h := range all {
		if len(h.Controllers) == 0 {
			continue
		}
		dir := h.Mount
		for name := range strings.SplitSeq(strings.Trim(cgroup, "/"), "/") {
			parent := dir
			dir = filepath.Join(dir, name)
			if err := makeOne(h, parent, dir); err != nil {
				return fmt.Errorf("make cgroup %s: %w", dir, err)
			}
		}
	}
	return nil
}

// makeOne creates the cgroup dir below the existing cgroup parent in one hierarchy.
func makeOne(h Hierarchy, parent, dir string) error {
	if h.Unified {
		for _, c := range h.Controllers {
			// Some controllers (rdma, misc) cannot be enabled on every machine. The error is ignored here, because a
			// test that needs such a controller fails later, when the test reads the controller's files.
			_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+c), 0o644)
		}
	}
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil || h.Unified || !slices.Contains(h.Controllers, "cpuset") {
		return err
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		inherited, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), inherited, 0o644); err != nil {
			return err
		}
	}
	return nil
}
