package nrihost

import (
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
)

// withRemovals adds to an adjustment the removals of environment variables and devices by plugins. The NRI library's
// answer lacks these removals, except if a plugin sets a new value. But the library removes the variable or device from
// the container in its request for the next plugin (adjustEnv and adjustDevices in pkg/adaptation/result.go of NRI
// 0.12). The parameters before and after are this container before the first plugin and after the last plugin.
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
