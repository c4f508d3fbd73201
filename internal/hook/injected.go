package hook

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// DeviceNodes gives containers the device nodes that their pod requests by device number. The keys and values are those
// of NRI 0.12, plugin device-injector.
type DeviceNodes struct {
	// Allowed are the host's devices that pods may have, with their paths on the host.
	Allowed []lifecycle.Device
}

// DeviceNodesOptions tunes the hook of device nodes.
type DeviceNodesOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Allowed are the paths of the host's devices that pods may have, such as
	// /dev/fuse. The agent reads the devices' numbers when it reads the configuration.
	// If the list is empty, pods get none.
	Allowed []string `json:"allowed" check:"device paths"`
}

// Make makes the hook for a node.
func (o DeviceNodesOptions) Make(n Node, _ *Options) (Hook, error) {
	h := DeviceNodes{}
	for _, path := range o.Allowed {
		if d, found := n.Device(path); found {
			d.Host = path
			h.Allowed = append(h.Allowed, d)
		}
	}
	return h, nil
}

// Info describes the hook.
func (DeviceNodes) Info() Info {
	return Info{
		Name:    "deviceNodes",
		About:   "device nodes that a pod requests by number",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRIDevices},
		Sets:    []lifecycle.Field{lifecycle.DeviceNode},
		Compose: "one hook per device node",
		Differs: []string{
			"pods get only devices with the numbers of a path in hooks.deviceNodes.allowed; the agent reports other devices, and the container starts without them",
			"a malformed text is reported, and the container starts without its devices; the plugin fails the creation",
			"pipes are not created",
		},
	}
}

// Propose adds the device nodes that the pod requests for a container.
func (h DeviceNodes) Propose(in *Input, out *Output) {
	asked, why, ok := scopedRequest(in, in.Intent.DeviceNodes, "deviceNodes")
	if !ok {
		return
	}
	for _, d := range asked.V {
		i := slices.IndexFunc(h.Allowed, func(o lifecycle.Device) bool { return o.Type == d.Type && o.Major == d.Major && o.Minor == d.Minor })
		if i < 0 {
			out.decline(asked.Key, d.String(), "device-nodes: hooks.deviceNodes.allowed lists no device of the node with these numbers")
			continue
		}
		d.Host = h.Allowed[i].Host
		out.Values = append(out.Values, lifecycle.Value{Field: lifecycle.DeviceNode, Key: d.Path, Device: &d, Why: why})
	}
}

// CDIDevicesOptions are the options of the hook that gives containers CDI devices. A pod can name devices, as for the
// plugin device-injector of NRI 0.12. A pod can also request exclusive devices, which the engine chooses.
type CDIDevicesOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Allowed are the CDI devices that pods may have, as vendor.com/class=name; an entry that ends with * stands for
	// all names that begin with the text before it. If the list is empty, pods get none.
	Allowed []string `json:"allowed" check:"CDI devices"`
	// Classes are the kinds of devices, as vendor.com/class, that pods may have exclusively. Pods request a number
	// of devices of a kind, or devices by name (trimtab.io/cdi-devices). If the list is empty, pods get none.
	Classes []string `json:"classes" check:"CDI kinds"`
}

// GivesKind reports whether a container may have exclusive devices of a kind.
func (h CDIDevicesOptions) GivesKind(kind string) bool { return slices.Contains(h.Classes, kind) }

// Kinds returns the kinds of devices that a container may have exclusively.
func (h CDIDevicesOptions) Kinds() []string { return h.Classes }

// Info describes the hook.
func (CDIDevicesOptions) Info() Info {
	return Info{
		Name:    "cdiDevices",
		About:   "CDI devices that a pod requests",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRICDI, intent.TrimtabCDIDevices},
		Sets:    []lifecycle.Field{lifecycle.CDIDevice},
		Compose: "one hook per device",
		Differs: []string{
			"trimtab.io/cdi-devices is a key of Trimtab: it requests exclusive devices of the kinds in hooks.cdiDevices.classes; a container gets all devices that it requests, or none",
			"pods get only devices in hooks.cdiDevices.allowed; the agent reports other devices, and the container starts without them",
			"a malformed text is reported, and the container starts without its devices; the plugin fails the creation",
		},
	}
}

// Propose adds the container's exclusive devices, and the devices that the pod names for the container.
func (h CDIDevicesOptions) Propose(in *Input, out *Output) {
	h.addExclusive(in, out)
	asked, why, ok := scopedRequest(in, in.Intent.CDIDevices, "cdiDevices")
	if !ok {
		return
	}
	for _, name := range asked.V {
		if !matchesList(h.Allowed, name) {
			out.decline(asked.Key, name, "cdi-devices: hooks.cdiDevices.allowed does not list this device")
			continue
		}
		if owner := in.TakenDevices[name]; owner != "" {
			out.decline(asked.Key, name, "cdi-devices: the device belongs to "+owner)
			continue
		}
		out.setText(in, lifecycle.CDIDevice, name, name, why)
	}
}

// addExclusive adds the exclusive devices that the engine chose for the container, or reports why it chose none.
func (CDIDevicesOptions) addExclusive(in *Input, out *Output) {
	asked, why, ok := scopedRequest(in, in.Intent.ExclusiveDevices, "cdiDevices")
	if !ok {
		return
	}
	if in.DevicesRefused != "" {
		out.decline(asked.Key, "", string(intent.ExclusiveDevicesKind)+": "+in.DevicesRefused)
		out.Failure = "hook cdiDevices: " + in.DevicesRefused
		return
	}
	why.Text = "exclusive"
	for _, name := range in.ExclusiveDevices {
		out.setText(in, lifecycle.CDIDevice, name, name, why)
	}
}
