package keeper

import (
	"errors"
	"path"
	"strings"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// inPartitions returns the CPUs that partitions of ours have, or of an earlier
// keeper's.
func (k *Keeper) inPartitions() cgroup.IDs {
	k.mu.Lock()
	defer k.mu.Unlock()
	var sum cgroup.IDs
	add := func(text string) {
		has, _ := cgroup.ParseIDs(text) // of what the kernel said, or we did
		sum = sum.Union(has)
	}
	for at, r := range k.parts {
		if at.key == cgroup.Exclusive && r.target.Owner != chainOwner && r.verified {
			add(r.kernel)
		}
	}
	for at, o := range k.remembered {
		if at.key == cgroup.Exclusive && o.Owner != chainOwner {
			add(o.Ours)
		}
	}
	return sum
}

// withPartitions returns the CPUs a cgroup would allow its children if there
// were no partitions of ours, and those the root would.
func (k *Keeper) withPartitions(dir string) (list, root string, err error) {
	parted := k.inPartitions()
	for !parted.Empty() && dir != "." {
		is, err := k.tree.Read(dir, lifecycle.Unified, cgroup.Partition)
		if err != nil || !strings.HasPrefix(is, "root") {
			break
		}
		dir = path.Dir(dir)
	}
	list, err = k.tree.ParentCPUs(dir)
	if err != nil {
		return "", "", err
	}
	if root, err = k.tree.ParentCPUs("."); err != nil || parted.Empty() {
		return list, root, err
	}
	bound := parted
	for d := dir; d != "."; d = path.Dir(d) {
		text, err := k.tree.Read(d, lifecycle.CPUSetCPUs, "")
		if own, bad := cgroup.ParseIDs(text); err == nil && bad == nil && !own.Empty() {
			bound = bound.And(own)
		}
	}
	has, err1 := cgroup.ParseIDs(list)
	all, err2 := cgroup.ParseIDs(root)
	return has.Union(bound).String(), all.Union(parted).String(), errors.Join(err1, err2)
}
