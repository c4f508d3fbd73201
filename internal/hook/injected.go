package hook

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// DeviceNodes gives containers device nodes that their pod names by number. Keys and
// values: NRI 0.12, plugin device-injector.
type DeviceNodes struct {
	// Allowed are the host's devices that pods may have, with their paths on the host.
	Allowed []lifecycle.Device
}

// DeviceNodesOptions tunes the hook of device nodes.
type DeviceNodesOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Allowed are the paths of the host's devices that pods may have, such as /dev/fuse.
	// Their numbers are read when the configuration is. Without any, pods get none.
	Allowed []string `json:"allowed" check:"device paths"`
}

// AllOn is the hook with all that can be switched on.
func (DeviceNodesOptions) AllOn() Hook { return DeviceNodes{} }

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
			"only devices with the numbers of a path in hooks.deviceNodes.allowed; the agent reports others, and the container gets the rest",
			"a malformed text is reported, and the container starts without its devices; the plugin fails the creation",
			"pipes are not created",
		},
	}
}

// Propose adds the device nodes.
func (h DeviceNodes) Propose(in *Input, out *Output) {
	asked, why, ok := scoped(in, in.Intent.DeviceNodes, "deviceNodes")
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

// CDIDevices gives containers the CDI devices that their pod names. Keys and values:
// NRI 0.12, plugin device-injector.
type CDIDevices struct {
	// Allowed are the names that pods may have. A name that ends with * is a prefix of allowed
	// names.
	Allowed []string
}

// CDIDevicesOptions tunes the hook of CDI devices.
type CDIDevicesOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Allowed are the CDI devices that pods may have, as vendor.com/class=name; one that
	// ends with * stands for all that begin so. Without any, pods get none.
	Allowed []string `json:"allowed" check:"CDI devices"`
}

// AllOn is the hook with all that can be switched on.
func (CDIDevicesOptions) AllOn() Hook { return CDIDevices{} }

// Make makes the hook for a node.
func (o CDIDevicesOptions) Make(Node, *Options) (Hook, error) {
	return CDIDevices{Allowed: o.Allowed}, nil
}

// Info describes the hook.
func (CDIDevices) Info() Info {
	return Info{
		Name:    "cdiDevices",
		About:   "CDI devices that a pod requests",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRICDI},
		Sets:    []lifecycle.Field{lifecycle.CDIDevice},
		Compose: "one hook per device",
		Differs: []string{
			"only the names in hooks.cdiDevices.allowed; the agent reports others, and the container gets the rest",
			"a malformed text is reported, and the container starts without its devices; the plugin fails the creation",
		},
	}
}

// Propose adds the devices.
func (h CDIDevices) Propose(in *Input, out *Output) {
	asked, why, ok := scoped(in, in.Intent.CDIDevices, "cdiDevices")
	if !ok {
		return
	}
	for _, name := range asked.V {
		if !slices.ContainsFunc(h.Allowed, func(pattern string) bool { return matchesEnd(pattern, name) }) {
			out.decline(asked.Key, name, "cdi-devices: hooks.cdiDevices.allowed does not list it")
			continue
		}
		out.text(in, lifecycle.CDIDevice, name, name, why)
	}
}
