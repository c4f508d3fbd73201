package cgroup

import (
	"path"
	"strings"
)

// IsMissing reports whether a cgroup does not exist in its tree. The tree must have the cgroup above
// all pods: in another tree, a missing cgroup means nothing. A missing cgroup need not have existed
// before.
func (t *Tree) IsMissing(dir string) bool {
	return !t.Has(dir) && t.Has(Top(dir))
}

// existenceController is the controller whose hierarchy shows which cgroups exist in version 1, because runtimes create
// a cgroup there first.
const existenceController = "cpuset"

// Has reports whether a cgroup exists.
func (t *Tree) Has(dir string) bool { return t.Exists(dir, existenceController) }

// Top returns the first component of dir, the cgroup directly below the root.
func Top(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// Find returns the cgroup of a container, by its id, in a pod's cgroup.
func (t *Tree) Find(podDir, id string) (dir string, ok bool) {
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
