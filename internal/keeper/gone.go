package keeper

import "github.com/trimtab/trimtab/internal/cgroup"

// Gone reports whether a cgroup certainly does not exist. A cgroup that cannot
// be read for another reason is not gone.
func (k *Keeper) Gone(dir string) bool {
	_, err := k.tree.ParentCPUs(dir)
	return err != nil && cgroup.Gone(err)
}
