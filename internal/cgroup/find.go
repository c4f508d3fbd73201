package cgroup

import (
	"path"
	"strings"
)

// Gone reports whether a cgroup does not exist in the tree that it would be in: the
// one that has the cgroup above all pods. A tree without that one is another tree, of
// which the absence of a cgroup shows nothing. Nor does it show that a cgroup
// was ever there.
func (t *Tree) Gone(dir string) bool {
	return !t.Has(dir) && t.Has(Top(dir))
}

// existence is the controller whose hierarchy shows in version 1 what exists: runtimes
// make a cgroup there first.
const existence = "cpuset"

// Has reports whether a cgroup exists.
func (t *Tree) Has(dir string) bool { return t.Exists(dir, existence) }

// Top is the cgroup below the root that dir is in.
func Top(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// Find returns where in a pod's cgroup that of a container is, by its id.
func (t *Tree) Find(podDir, id string) (dir string, ok bool) {
	names, err := t.Children(podDir, existence)
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

// FindPod returns the cgroup of a pod by its UID, below the directories named
// kubepods that are above some known ones, and where a kubelet puts its own.
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
	names, err := t.Children(above, existence)
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
