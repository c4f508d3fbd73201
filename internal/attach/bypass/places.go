package bypass

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// dirWatcher watches the directories of a cgroup tree that belong to pods, and the directories above them. Only one
// goroutine uses it.
type dirWatcher struct {
	tree    *cgroup.Tree
	watcher cgroup.Watcher
	// roots are the possible directories of a kubelet's cgroups. They need not exist.
	roots []string
	// listedDirs are pod directories outside the roots, which the runtime has listed.
	listedDirs     map[string]bool
	watchedParents map[string]bool // watched directories in which a root may be created
	watchedGroups  map[string]bool // watched directories of kubepods and of its QoS classes
	watchedPods    map[string]bool // watched directories of pods
	// watchError is why a directory could not be watched; "" if all directories are watched.
	watchError string
	// skipsWatchedPods means that scan does not read again the pod directories that are already watched.
	skipsWatchedPods bool
}

// kubeletRoots returns the directories below --cgroup-root in which the kubelet creates its cgroups, for both cgroup
// drivers. (kubelet 1.36, pkg/kubelet/cm: the name of a systemd slice contains its path, and dashes in names become
// underscores.)
func kubeletRoots(root string) ([]string, error) {
	root = strings.Trim(path.Clean("/"+root), "/")
	var parts []string
	if root != "" {
		for part := range strings.SplitSeq(root, "/") {
			parts = append(parts, strings.ReplaceAll(strings.TrimSuffix(part, ".slice"), "-", "_"))
		}
	}
	slice, err := cgroup.PodPath(strings.Join(append(parts, "kubepods.slice"), "-"))
	if err != nil {
		return nil, fmt.Errorf("bypass.cgroupRoot %q: %w", root, err)
	}
	return slices.Compact([]string{path.Join(root, "kubepods"), slice, path.Join(root, "kubepods.slice")}), nil
}

func newDirWatcher(tree *cgroup.Tree, w cgroup.Watcher, roots []string) *dirWatcher {
	return &dirWatcher{
		tree: tree, watcher: w, roots: roots,
		listedDirs: map[string]bool{}, watchedParents: map[string]bool{}, watchedGroups: map[string]bool{}, watchedPods: map[string]bool{},
	}
}

// watchedPath returns the path of a cgroup in the hierarchy in which the session watches pods and containers. In
// version 1 this is the cpuset hierarchy, because runtimes create a container's directory there first.
func watchedPath(tree *cgroup.Tree, dir string) string {
	if tree.Version == cgroup.V1 {
		return path.Join("cpuset", dir)
	}
	return dir
}

// cgroupDir returns the cgroup to which a path in any hierarchy belongs. ok is false for the root of a hierarchy.
func (p *dirWatcher) cgroupDir(file string) (dir string, ok bool) {
	if p.tree.Version == cgroup.V2 {
		return file, true
	}
	_, dir, ok = strings.Cut(file, "/")
	return dir, ok
}

// scan watches all existing directories of pods and returns the directories of containers, by container id. The session
// calls scan at the start, and whenever inotify may have lost notices.
func (p *dirWatcher) scan() map[string]string {
	p.watchError = ""
	for _, kind := range []map[string]bool{p.watchedPods, p.watchedGroups, p.watchedParents} {
		maps.DeleteFunc(kind, func(dir string, _ bool) bool { return !p.tree.Has(dir) }) // inotify may have lost the notice of dir's removal
	}
	found := map[string]string{}
	for _, top := range p.roots {
		if !p.tree.Has(top) {
			p.watchNearestParent(top)
			continue
		}
		p.addGroup(top, found)
	}
	for dir := range p.listedDirs {
		if !p.tree.Has(dir) {
			delete(p.listedDirs, dir)
			continue
		}
		p.addPod(dir, found)
	}
	return found
}

// rescan watches the pod directories that are not watched yet, and returns the directories of the containers in them,
// by container id. The caller uses scan instead if inotify has lost notices.
func (p *dirWatcher) rescan() map[string]string {
	p.skipsWatchedPods = true
	defer func() { p.skipsWatchedPods = false }()
	return p.scan()
}

// watchNearestParent watches the nearest existing directory above a root that does not exist yet.
func (p *dirWatcher) watchNearestParent(top string) {
	for dir := path.Dir(top); ; dir = path.Dir(dir) {
		if dir == "." || p.tree.Has(dir) {
			p.watchDir(dir, p.watchedParents)
			return
		}
	}
}

// addGroup watches a directory of kubepods or of a QoS class, and the directories of the pods in it. It adds the
// directories of these pods' containers to found.
func (p *dirWatcher) addGroup(dir string, found map[string]string) {
	if !p.watchDir(dir, p.watchedGroups) {
		return
	}
	names, _ := p.tree.Children(dir, "cpuset") // an error means that the directory was removed meanwhile
	for _, name := range names {
		p.addChild(path.Join(dir, name), found)
	}
}

// addChild handles a directory in a watched group. If the directory belongs to a QoS class or a pod, addChild watches
// it and adds the directories of the containers below it to found.
func (p *dirWatcher) addChild(dir string, found map[string]string) {
	switch cgroup.ParseName(dir).Kind {
	case cgroup.QoSDir:
		if slices.Contains(p.roots, path.Dir(dir)) {
			p.addGroup(dir, found)
		}
	case cgroup.PodDir:
		p.addPod(dir, found)
	}
}

// addPod watches the directory of a pod, and adds the directories of the pod's containers to found.
func (p *dirWatcher) addPod(dir string, found map[string]string) {
	if p.skipsWatchedPods && p.watchedPods[dir] || !p.watchDir(dir, p.watchedPods) {
		return
	}
	names, _ := p.tree.Children(dir, "cpuset")
	for _, name := range names {
		addContainerDir(path.Join(dir, name), found)
	}
}

// addContainerDir adds a directory to found if its name is the name of a container's cgroup.
func addContainerDir(dir string, found map[string]string) {
	if n := cgroup.ParseName(dir); n.Kind == cgroup.ContainerDir {
		found[n.ID] = dir
	}
}

// watchListedPod watches the directory of a pod that the runtime has reported. It returns the directories of the pod's
// containers, by container id. It returns none if the pod's directory was watched already.
func (p *dirWatcher) watchListedPod(dir string) map[string]string {
	found := map[string]string{}
	if p.watchedPods[dir] {
		return found
	}
	if !slices.ContainsFunc(p.roots, func(top string) bool { return strings.HasPrefix(dir, top+"/") }) {
		p.listedDirs[dir] = true
	}
	p.addPod(dir, found)
	return found
}

// handleCreated handles the creation of a directory. It returns the directories of containers below the new directory,
// by container id.
func (p *dirWatcher) handleCreated(file string) map[string]string {
	dir, ok := p.cgroupDir(file)
	if !ok {
		return nil
	}
	above := path.Dir(dir)
	found := map[string]string{}
	switch {
	case !p.isDir(dir):
		// A file, a link, or a directory that was removed already.
	case p.watchedGroups[above]:
		p.addChild(dir, found)
	case p.watchedPods[above]:
		addContainerDir(dir, found)
	case p.watchedParents[above]:
		return p.scan()
	}
	return found
}

// isDir reports whether a path is a directory. It returns false for a link, because Children does not return links.
func (p *dirWatcher) isDir(dir string) bool {
	names, err := p.tree.Children(path.Dir(dir), "cpuset")
	return err == nil && slices.Contains(names, path.Base(dir))
}

// handleRemoved handles the removal of a directory. It returns the removed cgroup, which may have belonged to a
// container. ok is false for the root of a hierarchy.
func (p *dirWatcher) handleRemoved(file string) (dir string, ok bool) {
	if dir, ok = p.cgroupDir(file); ok {
		delete(p.watchedPods, dir)
		delete(p.watchedGroups, dir)
		delete(p.watchedParents, dir)
	}
	return dir, ok
}

// watchDir watches a directory and adds it to kind, which is one of the maps of watched directories. It reports whether
// the directory exists.
func (p *dirWatcher) watchDir(dir string, kind map[string]bool) bool {
	if kind[dir] {
		return true
	}
	err := p.watcher.Add(watchedPath(p.tree, dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false
	case err != nil:
		// Return true, so that the caller reads the directory now. Later scans find what is created in it.
		p.watchError = fmt.Sprintf("%s cannot be watched: %v", dir, err)
		return true
	}
	kind[dir] = true
	return true
}
