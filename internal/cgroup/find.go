package cgroup

import (
	"path"
	"strings"
)

// IsMissing reports whether the cgroup dir does not exist, although the first directory of its path exists. If this
// first directory does not exist either, IsMissing returns false, because the agent possibly sees another tree than the
// runtime. A cgroup that was never created is also missing.
func (t *Tree) IsMissing(dir string) bool {
	return !t.Has(dir) && t.Has(TopDir(dir))
}

// existenceController is the controller whose hierarchy shows which cgroups exist in version 1. Runtimes create a
// cgroup in this hierarchy first.
const existenceController = "cpuset"

// Has reports whether a cgroup exists.
func (t *Tree) Has(dir string) bool { return t.Exists(dir, existenceController) }

// TopDir returns the first component of dir, the cgroup directly below the root.
func TopDir(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// FindContainer finds the cgroup of a container, by the container's id, directly below the pod's cgroup podDir.
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

// FindPod finds the cgroup of a pod by the pod's UID. The parameter known lists cgroups of pods. FindPod searches the
// kubelet's usual directories, and all kubepods directories that contain a known cgroup.
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
		if dir, ok := t.findPodBelow(top, uid); ok {
			return dir, true
		}
	}
	return "", false
}

// findPodBelow finds the cgroup of a pod, by the pod's UID, in the kubepods cgroup top or in the QoS cgroups below top.
func (t *Tree) findPodBelow(top, uid string) (dir string, ok bool) {
	names, err := t.Children(top, existenceController)
	if err != nil {
		return "", false
	}
	for _, name := range names {
		switch n := ParseName(name); {
		case n.Kind == PodDir && n.ID == uid:
			return path.Join(top, name), true
		case n.Kind == QoSDir:
			if dir, ok := t.findPodBelow(path.Join(top, name), uid); ok {
				return dir, true
			}
		}
	}
	return "", false
}
