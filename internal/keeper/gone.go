package keeper

import (
	"errors"
	"path"
	"strings"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// Gone reports whether a cgroup does not exist in the tree that it would be in: the
// one that has the cgroup above all pods. A tree without that one is another tree, of
// which the absence of a cgroup shows nothing. Nor does it show that a cgroup
// was ever there.
func (k *Keeper) Gone(dir string) bool {
	return !k.Exists(dir) && k.tree.Exists(top(dir), gauge)
}

// ErrOtherTree is why a value cannot be given back that was written to a tree which is
// not the one at hand.
var ErrOtherTree = errors.New("not in this cgroup tree")

// gauge is the controller whose hierarchy is looked at in version 1: runtimes make
// a cgroup there first.
const gauge = "cpuset"

// Exists reports whether a cgroup exists.
func (k *Keeper) Exists(dir string) bool { return k.tree.Exists(dir, gauge) }

// top is the cgroup below the root that dir is in.
func top(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// Find returns where in a pod's cgroup that of a container is, by its id.
func (k *Keeper) Find(podDir, id string) (dir string, ok bool) {
	names, err := k.tree.Children(podDir, "cpuset")
	if err != nil {
		return "", false
	}
	for _, name := range names {
		if name == id || cgroup.Named(name) == (cgroup.Name{Sort: cgroup.ContainerDir, ID: id}) {
			return path.Join(podDir, name), true
		}
	}
	return "", false
}

// FindPod returns the cgroup of a pod by its UID, below the directories named
// kubepods that are above some known ones, and where a kubelet puts its own.
func (k *Keeper) FindPod(uid string, known []string) (dir string, ok bool) {
	tops := map[string]bool{"kubepods": true, "kubepods.slice": true}
	for _, dir := range known {
		for ; dir != "." && dir != "/"; dir = path.Dir(dir) {
			if cgroup.Named(dir).Sort == cgroup.KubepodsDir {
				tops[dir] = true
			}
		}
	}
	for top := range tops {
		if dir, ok := k.podBelow(top, uid); ok {
			return dir, true
		}
	}
	return "", false
}

func (k *Keeper) podBelow(above, uid string) (dir string, ok bool) {
	names, err := k.tree.Children(above, "cpuset")
	if err != nil {
		return "", false
	}
	for _, name := range names {
		switch n := cgroup.Named(name); {
		case n.Sort == cgroup.PodDir && n.ID == uid:
			return path.Join(above, name), true
		case n.Sort == cgroup.QoSDir:
			if dir, ok := k.podBelow(path.Join(above, name), uid); ok {
				return dir, true
			}
		}
	}
	return "", false
}
