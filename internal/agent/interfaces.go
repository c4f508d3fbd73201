package agent

import (
	"os"
	"path/filepath"
)

// interfaceProbe returns a function that reports whether the host has a network interface; nil if the interfaces are
// unknown. It reads sysfs, which shows the network namespace in which sysfs was mounted. The agent can therefore run in
// another network namespace.
func interfaceProbe(o Options) func(name string) (has, known bool) {
	if o.HasInterface != nil || o.Host != nil {
		return o.HasInterface
	}
	dir := filepath.Join(o.Config.Paths.Sys, "class/net")
	return func(name string) (has, known bool) {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return true, true
		}
		_, err := os.Stat(dir)
		return false, err == nil
	}
}
