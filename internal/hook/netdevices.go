package hook

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// NetworkDevices moves network interfaces of the host into containers, as their pod
// asks. Keys and values: NRI 0.12, plugins device-injector and network-device-injector.
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
		Name:    "networkDevices",
		About:   "network interfaces of the host that move into a container",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRINetDevices, intent.NRIPodNetwork},
		Sets:    []lifecycle.Field{lifecycle.NetDevice},
		Compose: "the only hook that sets them",
		Differs: []string{
			"the OCI runtime moves them: runc from 1.4",
			"only the interfaces in hooks.networkDevices.allowed; the agent reports others",
			"refused for a pod with hostNetwork: the interface is already in its network namespace",
			"the interface moves with the first container of the pod that requests it, and stays in the pod's network namespace: later containers of the pod, and containers that are started again, are created without a request for it",
			"an interface that the host does not have is reported, and the container is created without it; an OCI runtime would fail the container",
			"netdevice.noderesource.dev, netdevices.nri.containerd.io (plugin network-device-injector): the interface moves with the pod's first container, and not with its sandbox",
			"netdevice.noderesource.dev, netdevices.nri.containerd.io: address, prefix and mtu are read and not applied, as in the plugin",
			"when the pod ends, the kernel gives a physical interface back to the host under its name in the pod, and deletes a virtual one",
		},
	}
}

// Propose moves the interfaces.
func (h NetworkDevices) Propose(in *Input, out *Output) {
	if in.Container == "" {
		return
	}
	var moves []intent.NetDevice
	for _, asked := range in.Intent.InterfacesOf(in.Container) {
		why := lifecycle.Reason{Hook: "networkDevices", Source: asked.Key, Text: "its own"}
		if asked.Key == in.Intent.PodInterfaces.Key {
			why.Text = "its pod's"
		}
		for _, d := range asked.V {
			switch no := h.refusal(in, d, moves); {
			case no != "":
				out.decline(asked.Key, d.Host, "network-devices: "+no)
			case slices.Contains(moves, d): // the pod's and its own
			case in.Creation == nil:
				if !slices.Contains(in.SkippedInterfaces, d.Host) {
					out.text(in, lifecycle.NetDevice, d.Host, d.Name, why)
				}
			case in.Creation.away(d.Host, asked.Key, out):
				out.SkippedInterfaces = append(out.SkippedInterfaces, d.Host)
			default:
				out.text(in, lifecycle.NetDevice, d.Host, d.Name, why)
			}
			moves = append(moves, d)
		}
	}
}

// refusal returns the reason why a container does not get an interface beside others; "" for none.
func (h NetworkDevices) refusal(in *Input, d intent.NetDevice, others []intent.NetDevice) string {
	switch {
	case !slices.ContainsFunc(h.Allowed, func(pattern string) bool { return matchesEnd(pattern, d.Host) }):
		return "hooks.networkDevices.allowed does not list it"
	case in.Pod != nil && in.Pod.HostNetwork:
		return "the pod uses the host's network"
	case slices.ContainsFunc(others, func(o intent.NetDevice) bool { return o != d && (o.Host == d.Host || o.Name == d.Name) }):
		return "another key of the pod uses this interface, or its name " + d.Name
	}
	return ""
}

// away reports whether a new container must be created without an interface, since its OCI runtime
// would not find it on the host: another container of the pod has moved it, or will.
func (c *Creation) away(host, key string, out *Output) bool {
	has, known := c.HostInterfaces[host]
	starts, other := c.PodInterfaces[host]
	switch {
	case starts || other && !has:
		return true
	case known && !has:
		out.report(lifecycle.Problem{
			Key: key, Value: host, Warning: true, Reason: "network-devices: the host has no such network interface",
			Then: "the container is created without it; the pod has it only if an earlier container of the pod moved it",
		})
		return true
	}
	return false
}
