package cgroup

import (
	"path"
	"strings"
)

// IsMissing reports whether a cgroup does not exist, although the tree has the cgroup above all pods. If the tree lacks
// that cgroup, it is another tree, and IsMissing returns false. A missing cgroup need not have existed before.
func (t *Tree) IsMissing(dir string) bool {
	return !t.Has(dir) && t.Has(TopDir(dir))
}

// existenceController is the controller whose hierarchy shows which cgroups exist in version 1, because runtimes create
// a cgroup there first.
const existenceController = "cpuset"

// Has reports whether a cgroup exists.
func (t *Tree) Has(dir string) bool { return t.Exists(dir, existenceController) }

// TopDir returns the first component of dir, the cgroup directly below the root.
func TopDir(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// FindContainer returns the cgroup of a container in a pod's cgroup, by the container's id.
func (t *Tree) FindContainer(podDir, id string) (dir string, ok bool) {
	names, err := t.Children(podDir, existenceController)
	if err != nil {
		return "", false
	}
	for _, name := range names {
		if name == id || ParseName(name) == (Name{Kind: ContainerDir, ID: id}) {
			return path.Join(podDir, name), true
		}
	}
	return "", false
}

// FindPod returns the cgroup of a pod by its UID. It searches the kubelet's usual directories, and all kubepods
// directories that contain one of the known cgroups.
func (t *Tree) FindPod(uid string, known []string) (dir string, ok bool) {
	tops := map[string]bool{"kubepods": true, "kubepods.slice": true}
	for _, dir := range known {
		for ; dir != "." && dir != "/"; dir = path.Dir(dir) {
			if ParseName(dir).Kind == KubepodsDir {
				tops[dir] = true
			}
		}
	}
	for top := range tops {
		if dir, ok := t.podBelow(top, uid); ok {
			return dir, true
		}
	}
	return "", false
}

// podBelow searches the cgroup above and the QoS cgroups in it for a pod.
func (t *Tree) podBelow(above, uid string) (dir string, ok bool) {
	names, err := t.Children(above, existenceController)
	if err != nil {
		return "", false
	}
	for _, name := range names {
		switch n := ParseName(name); {
		case n.Kind == PodDir && n.ID == uid:
			return path.Join(above, name), true
		case n.Kind == QoSDir:
			if dir, ok := t.podBelow(path.Join(above, name), uid); ok {
				return dir, true
			}
		}
	}
	return "", false
}
