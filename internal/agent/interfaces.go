package agent

import (
	"os"
	"path/filepath"
)

// interfaceProbe returns a function that reports whether the host has a network interface: Options.HasInterface, or a
// function that reads sysfs. It returns nil if the interfaces are unknown. sysfs lists the interfaces of the network
// namespace in which it was mounted, so the agent need not run in the host's network namespace.
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
