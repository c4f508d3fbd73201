package nodeview

import (
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// DeviceKinds returns the kinds of CDI devices that a container can have exclusively, and which containers have devices
// of each kind. nodeDevices are all CDI devices of the node.
func DeviceKinds(source Source, nodeDevices []lifecycle.NodeDevice) (out []api.DeviceKind) {
	source.View(func(v *View) {
		for _, kind := range v.State.Policy.DeviceKinds() {
			out = append(out, api.DeviceKind{Kind: kind})
		}
		for _, d := range v.State.DeviceUses(nodeDevices) {
			kind, name, _ := strings.Cut(d.Name, "=")
			for i := range out {
				if out[i].Kind == kind {
					addDevice(&out[i], name, d.Owner, d.NotInSpecs)
				}
			}
		}
	})
	return out
}

// addDevice adds a device to the counts and owners of its kind. owner is the container that has the device; "" if it is
// free. notInSpecs means that the node's CDI specifications no longer have the device.
func addDevice(k *api.DeviceKind, name, owner string, notInSpecs bool) {
	if owner != "" {
		k.Owners = append(k.Owners, api.DeviceOwner{Device: name, Container: owner, Gone: notInSpecs})
	}
	if notInSpecs {
		return
	}
	if k.Total++; owner != "" {
		k.Used++
	}
}
