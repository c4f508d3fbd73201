package devices

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// LeftOut is the annotation of a Device that lists what it lacks, and why.
const LeftOut = "trimtab.io/left-out"

// Labels of a Node by which NVIDIA's gpu-feature-discovery says what its library tells of the GPUs.
const (
	memoryLabel  = "nvidia.com/gpu.memory"  // of each, in MiB
	productLabel = "nvidia.com/gpu.product" // with -MIG- where memory is that of a part
)

// unknown is why GPUs are not healthy in the object. Koordinator's scheduler divides by a GPU's memory, so that one without
// would be given to any pod (deviceshare, memoryBytesToRatio, read at a7a1b76).
const unknown = "the memory of GPUs is not known without NVIDIA's library, so that they are not healthy and no pod gets one"

// Device is the node's Device (scheduling.koordinator.sh/v1alpha1): annotations, and the fields at its top. labels are
// those of the Node.
func (i Inventory) Device(labels map[string]string) (annotations map[string]string, fields map[string]any) {
	all := []any{}
	memory, _ := i.memory(labels)
	for _, g := range i.GPUs {
		resources := map[string]any{"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
		if memory > 0 {
			resources["koordinator.sh/gpu-memory"] = strconv.FormatInt(memory, 10)
		}
		all = append(all, map[string]any{
			"type": "gpu", "id": g.UUID, "minor": int64(g.Minor), "health": memory > 0, "resources": resources, "topology": g.topology(),
		})
	}
	for _, r := range i.RDMA {
		d := map[string]any{
			"type": "rdma", "id": r.Bus, "minor": int64(r.Minor), "health": r.Active,
			"resources": map[string]any{"koordinator.sh/rdma": "100"}, "topology": r.topology(),
		}
		if len(r.VFs) > 0 {
			var functions []any
			for _, bus := range r.VFs {
				functions = append(functions, map[string]any{"minor": int64(-1), "busID": bus})
			}
			d["vfGroups"] = []any{map[string]any{"vfs": functions}}
		}
		all = append(all, d)
	}
	return map[string]string{LeftOut: i.Lacks(labels)}, map[string]any{"metadata": map[string]any{"labels": i.labels()}, "spec": map[string]any{"devices": all}}
}

// Lacks describes what the Device lacks, and why; "" for nothing.
func (i Inventory) Lacks(labels map[string]string) string {
	var out []string
	if len(i.GPUs) > 0 {
		if memory, why := i.memory(labels); memory == 0 {
			out = append(out, "GPU memory: "+why+"; "+unknown)
		}
		out = append(out, "GPU health: only NVIDIA's library knows it")
	}
	return strings.Join(append(out, i.Missing...), "; ")
}

// memory is what each GPU has in bytes, by the Node's labels; 0 where these do not say it, and why.
func (i Inventory) memory(labels map[string]string) (bytes int64, why string) {
	if slices.ContainsFunc(i.GPUs, func(g GPU) bool { return g.Model != i.GPUs[0].Model }) {
		return 0, "the Node's label " + memoryLabel + " is of one model, and there are several"
	}
	if strings.Contains(labels[productLabel], "-MIG-") {
		return 0, fmt.Sprintf("the Node's label %s is of parts of GPUs (%s)", memoryLabel, labels[productLabel])
	}
	value, has := labels[memoryLabel]
	if !has {
		return 0, "the Node has no label " + memoryLabel + ", which NVIDIA's gpu-feature-discovery makes"
	}
	const most = 1 << 30 // MiB, so that bytes do not overflow
	mebibytes, err := strconv.ParseInt(value, 10, 64)
	if err != nil || mebibytes <= 0 || mebibytes > most {
		return 0, fmt.Sprintf("the Node's label %s is %q, which is no size in MiB", memoryLabel, value)
	}
	return mebibytes << 20, ""
}

// labels are those of a Device, as koordlet has them.
func (i Inventory) labels() map[string]any {
	out := map[string]any{}
	if len(i.GPUs) == 0 {
		return out
	}
	out["node.koordinator.sh/gpu-vendor"] = "nvidia"
	model := strings.ReplaceAll(strings.TrimPrefix(i.GPUs[0].Model, "NVIDIA "), " ", "-")
	if same := !slices.ContainsFunc(i.GPUs, func(g GPU) bool { return g.Model != i.GPUs[0].Model }); same && valid(model) {
		out["node.koordinator.sh/gpu-model"] = model
	}
	if valid(i.Driver) {
		out["node.koordinator.sh/gpu-driver-version"] = i.Driver
	}
	return out
}

// valid reports whether a text can be a label's value.
func valid(value string) bool {
	const most = 63
	if value == "" || len(value) > most {
		return false
	}
	plain := func(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
	for i := range len(value) {
		if !plain(value[i]) && (i == 0 || i == len(value)-1 || !strings.ContainsRune("-_.", rune(value[i]))) {
			return false
		}
	}
	return true
}

// topology is where a device is. The socket is -1, as koordlet has it.
func (p PCI) topology() map[string]any {
	return map[string]any{"socketID": int64(-1), "nodeID": int64(p.Node), "pcieID": p.Root, "busID": p.Bus}
}
