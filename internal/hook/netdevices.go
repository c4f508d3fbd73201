package hook

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// NetworkDevices moves network interfaces of the host into containers, as their pod
// asks. Keys and values: NRI 0.12, plugin device-injector.
type NetworkDevices struct {
	// Allowed are the interfaces that pods may have. A name that ends with * is a prefix of
	// allowed names.
	Allowed []string
}

// NetworkDevicesOptions tunes the hook of network interfaces.
type NetworkDevicesOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Allowed are the network interfaces of the host that pods may have; one that ends
	// with * stands for all that begin so. Without any, pods get none.
	Allowed []string `json:"allowed" check:"interfaces"`
}

// AllOn is the hook with all that can be switched on.
func (NetworkDevicesOptions) AllOn() Hook { return NetworkDevices{} }

// Make makes the hook for a node.
func (o NetworkDevicesOptions) Make(Node, *Options) (Hook, error) {
	return NetworkDevices{Allowed: o.Allowed}, nil
}

// Info describes the hook.
func (NetworkDevices) Info() Info {
	return Info{
		Name:     "networkDevices",
		About:    "network interfaces of the host that move into a container",
		Stages:   []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:    []string{intent.NRINetDevices},
		Sets:     []lifecycle.Field{lifecycle.NetDevice},
		Compose:  "the only hook that sets them",
		TestedOn: "the embedded runtime only; the OCI runtime moves them since runc 1.4",
		Differs: []string{
			"only the interfaces in hooks.networkDevices.allowed; the agent reports others",
			"refused for a pod with hostNetwork: the interface is already in its network namespace",
			"the interface moves with the first container of the pod that requests it; an OCI runtime fails a container whose interface has left the host, also when the container is started again",
			"netdevice.noderesource.dev, netdevices.nri.containerd.io (plugin network-device-injector): reported, and no interface moves; they request one for the whole pod, and an OCI runtime would fail each container after the first",
		},
	}
}

// Propose moves the interfaces.
func (h NetworkDevices) Propose(in *Input, out *Output) {
	asked, why, ok := scoped(in, in.Intent.NetDevices, "networkDevices")
	if !ok {
		return
	}
	for _, d := range asked.V {
		no := ""
		switch {
		case !slices.ContainsFunc(h.Allowed, func(pattern string) bool { return matchesEnd(pattern, d.Host) }):
			no = "hooks.networkDevices.allowed does not list it"
		case in.Pod != nil && in.Pod.HostNetwork:
			no = "the pod uses the host's network"
		}
		if no != "" {
			out.decline(asked.Key, d.Host, "network-devices: "+no)
			continue
		}
		out.text(in, lifecycle.NetDevice, d.Host, d.Name, why)
	}
}
