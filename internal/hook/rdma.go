package hook

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// RDMA gives the containers of a pod the device nodes of RDMA cards, or of PCI functions of such cards, that a
// scheduler allocated to the pod. The devices and modes are those of Koordinator 1.7, plugin RDMADeviceInject.
type RDMA struct {
	Host lifecycle.Host // has the node's devices
}

// RDMAOptions tunes the RDMA hook.
type RDMAOptions struct {
	// Enabled switches the hook on. The hook is off by default, because it gives a
	// container the device nodes that an annotation names.
	Enabled bool `json:"enabled"`
}

// Make makes the hook for a node.
func (RDMAOptions) Make(n Node, _ *Options) (Hook, error) {
	return RDMA{Host: n.Host()}, nil
}

// Info describes the hook.
func (RDMA) Info() Info {
	return Info{
		Name:           "rdma",
		About:          "device nodes of RDMA cards that the scheduler allocated",
		Stages:         []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:          []string{intent.KoordDevices},
		Sets:           []lifecycle.Field{lifecycle.DeviceNode},
		KernelFeatures: []string{"rdma"},
		Compose:        "one hook per device node",
		TestedOn:       "a model of /dev and /sys only; no RDMA card was available",
		Differs: []string{
			"a PCI function without a verbs device on this node is reported for the pod, and the container gets the device nodes of the other allocated functions (with Koordinator 1.7 it gets none)",
			"the agent reads the verbs devices of PCI functions at its start and whenever it reads its configuration, not while a container is created",
		},
	}
}

// The directory of RDMA device nodes, and the node that every RDMA user needs.
const (
	infinibandDir = "/dev/infiniband/"
	rdmaCM        = infinibandDir + "rdma_cm"
)

// Propose adds the device nodes.
func (h RDMA) Propose(in *Input, out *Output) {
	ask := in.Intent.RDMA
	if in.Container == "" || !ask.IsSet() {
		return
	}
	why := lifecycle.Reason{Hook: "rdma", Source: ask.Key, Text: "allocated by the scheduler"}
	if in.Intent.OnlyGrantedRule != "" {
		by, refused := in.checkGranted(ask.Key, ask.V, func(address string) string { return h.howFunctionWasGranted(in, address) })
		if refused != nil {
			out.addProblem(*refused)
			return
		}
		why.Text += by
	}
	had := len(out.Values)
	out.addDevice(h.Host.Devices, rdmaCM, why)
	for _, address := range ask.V {
		verbs, has := h.Host.Verbs[address]
		if !has {
			out.addProblem(lifecycle.Problem{
				Key: ask.Key, Value: address, Reason: "rdma: no verbs device belongs to this PCI address on this node",
			})
			continue
		}
		out.addDevice(h.Host.Devices, infinibandDir+verbs, why)
	}
	for _, v := range out.Values[had:] {
		v.Device.FileMode = lifecycle.Some[uint32](0o666)
	}
}

// howFunctionWasGranted returns how Kubernetes granted the PCI function with an address to the container; "" if it did
// not grant it. Device plugins of network cards use PCI addresses as ids, and each plugin has its own resource names.
// An address means the same PCI function for all plugins, so howFunctionWasGranted reads all resources.
func (h RDMA) howFunctionWasGranted(in *Input, address string) string {
	if by := in.howKubeletGranted("", address); by != "" {
		return by
	}
	verbs, has := h.Host.Verbs[address]
	if !has {
		return ""
	}
	return in.howNodeWasGranted(h.Host.Devices, infinibandDir+verbs)
}
