package keeper

// Gone reports whether a cgroup certainly does not exist: its hierarchy can be
// read and has no such directory.
func (k *Keeper) Gone(dir string) bool {
	const controller = "cpuset"
	return !k.tree.Exists(dir, controller) && k.tree.Exists(".", controller)
}
