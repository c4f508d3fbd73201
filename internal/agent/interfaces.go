package agent

import (
	"os"
	"path/filepath"
)

// interfacesOf returns what reports whether the host has a network interface; nil if that is unknown.
// The directory has the interfaces of the network namespace in which sysfs was mounted, whatever
// namespace the agent has.
func interfacesOf(o Options) func(name string) (has, known bool) {
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
