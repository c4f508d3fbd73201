package nrihost

import (
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
)

// withRemovals adds removals to the adjustment a, which the NRI library made from the answers of all plugins. If a
// plugin removes an environment variable or a device, and no plugin sets it to a new value, a does not show the
// removal. But the library also removes the variable or device from the container in its request, which the next plugin
// gets (adjustEnv and adjustDevices in pkg/adaptation/result.go of NRI 0.12). So withRemovals compares before, the
// container before the first plugin, with after, the container after the last plugin.
func withRemovals(a *api.ContainerAdjustment, before, after *api.Container) *api.ContainerAdjustment {
	var removed api.ContainerAdjustment
	for _, pair := range before.GetEnv() {
		name, _, _ := strings.Cut(pair, "=")
		if !slices.ContainsFunc(after.GetEnv(), func(o string) bool { return strings.HasPrefix(o, name+"=") }) {
			removed.RemoveEnv(name)
		}
	}
	for _, d := range before.GetLinux().GetDevices() {
		if !slices.ContainsFunc(after.GetLinux().GetDevices(), func(o *api.LinuxDevice) bool { return o.GetPath() == d.GetPath() }) {
			removed.RemoveDevice(d.GetPath())
		}
	}
	if len(removed.GetEnv()) == 0 && len(removed.GetLinux().GetDevices()) == 0 {
		return a
	}
	if a == nil {
		a = &api.ContainerAdjustment{}
	}
	a.Env = append(removed.Env, a.Env...)
	if gone := removed.GetLinux().GetDevices(); len(gone) > 0 {
		if a.Linux == nil {
			a.Linux = &api.LinuxContainerAdjustment{}
		}
		a.Linux.Devices = append(gone, a.Linux.Devices...)
	}
	return a
}
