package hook

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// NetworkDevicesOptions are the options of the hook that moves network interfaces of the host into containers, if their
// pod requests them. The keys and values are those of NRI 0.12, plugins device-injector and network-device-injector.
type NetworkDevicesOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Allowed are the network interfaces of the host that pods may have; an entry that ends with * stands for all
	// names that begin with the text before it. If the list is empty, pods get none.
	Allowed []string `json:"allowed" check:"interfaces"`
}

// Info describes the hook.
func (NetworkDevicesOptions) Info() Info {
	return Info{
		Name:    "networkDevices",
		About:   "network interfaces of the host that move into a container",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRINetDevices, intent.NRIPodNetwork},
		Sets:    []lifecycle.Field{lifecycle.NetDevice},
		Compose: "no other hook sets this field",
		Differs: []string{
			"the OCI runtime moves the interfaces; runc supports this since version 1.4",
			"pods get only the interfaces in hooks.networkDevices.allowed; the agent refuses and reports other interfaces",
			"the agent refuses interfaces for a pod with hostNetwork, because they are already in its network namespace",
			"the interface moves with the first container of the pod that requests it, and stays in the pod's network namespace: later containers of the pod, and containers that are started again, are created without a request for it",
			"an interface that the host does not have is reported, and the container is created without it; an OCI runtime would fail the container",
			"netdevice.noderesource.dev, netdevices.nri.containerd.io (plugin network-device-injector): the interface moves with the pod's first container, and not with its sandbox",
			"netdevice.noderesource.dev, netdevices.nri.containerd.io: address, prefix and mtu are read and not applied, as in the plugin",
			"when the pod ends, the kernel moves a physical interface back to the host, with the name that it had in the pod, and deletes a virtual one",
		},
	}
}

// Propose moves the interfaces that the pod requests into a container.
func (h NetworkDevicesOptions) Propose(in *Input, out *Output) {
	if in.Container == "" {
		return
	}
	var moves []intent.NetDevice
	for _, asked := range in.Intent.InterfacesOf(in.Container) {
		why := lifecycle.Reason{Hook: "networkDevices", Source: asked.Key, Text: "requested for the container"}
		if asked.Key == in.Intent.PodInterfaces.Key {
			why.Text = "requested for the pod"
		}
		for _, d := range asked.V {
			switch whyNot := h.refusal(in, d, moves); {
			case whyNot != "":
				out.decline(asked.Key, d.Host, "network-devices: "+whyNot)
			case slices.Contains(moves, d): // requested for the pod and for the container
			case in.Creation == nil && slices.Contains(in.SkippedInterfaces, d.Host): // the container was created without the interface
			case in.Creation != nil && in.Creation.mustSkipInterface(d.Host, asked.Key, out):
				out.SkippedInterfaces = append(out.SkippedInterfaces, d.Host)
			default:
				out.setText(in, lifecycle.NetDevice, d.Host, d.Name, why)
			}
			moves = append(moves, d)
		}
	}
}

// refusal returns the reason why a container may not have an interface; "" if it may have the interface. The list
// earlier has the interfaces that were requested for the container before this one.
func (h NetworkDevicesOptions) refusal(in *Input, d intent.NetDevice, earlier []intent.NetDevice) string {
	switch {
	case !matchesList(h.Allowed, d.Host):
		return "hooks.networkDevices.allowed does not list this interface"
	case in.Pod != nil && in.Pod.HostNetwork:
		return "the pod uses the host's network"
	case slices.ContainsFunc(earlier, func(o intent.NetDevice) bool { return o != d && (o.Host == d.Host || o.Name == d.Name) }):
		return "another annotation of the pod uses this interface, or the name " + d.Name
	}
	return ""
}

// mustSkipInterface reports whether a new container must be created without an interface, because the OCI runtime would
// not find the interface on the host. It would not find it if another container of the pod has already moved the
// interface, or moves it before the new container starts.
func (c *Creation) mustSkipInterface(host, key string, out *Output) bool {
	has, known := c.HostInterfaces[host]
	starts, other := c.PodInterfaces[host]
	switch {
	case starts || other && !has:
		return true
	case known && !has:
		out.addProblem(lifecycle.Problem{
			Key: key, Value: host, Warning: true, Reason: "network-devices: the host has no such network interface",
			Then: "the container is created without the interface; the pod has the interface only if an earlier container of the pod moved it",
		})
		return true
	}
	return false
}
