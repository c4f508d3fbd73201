package devices

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// LeftOutAnnotation is the annotation of a Device object. It lists the devices and values that the object does not
// contain, and why.
const LeftOutAnnotation = "trimtab.io/left-out"

// Labels that NVIDIA's gpu-feature-discovery sets on a Node. The values come from NVIDIA's library.
const (
	memoryLabel  = "nvidia.com/gpu.memory"  // memory of each GPU in MiB
	productLabel = "nvidia.com/gpu.product" // contains -MIG- if memoryLabel is about MIG instances
)

// whyUnhealthy is the reason for users why the Device reports GPUs of unknown memory size as not healthy. Koordinator's
// scheduler divides by the memory size, and allocates a healthy GPU without a memory size to any pod (deviceshare,
// memoryBytesToRatio, read at commit a7a1b76).
const whyUnhealthy = "the memory size of GPUs is unknown without NVIDIA's library, so the GPUs count as not healthy, and no pod gets a GPU"

// Device returns the annotations and the top-level fields of the node's Device object
// (scheduling.koordinator.sh/v1alpha1). The parameter labels has the labels of the Node object.
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
			"type": "rdma", "id": r.Address, "minor": int64(r.Minor), "health": r.Active,
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
	return map[string]string{LeftOutAnnotation: i.MissingText(labels)}, map[string]any{"metadata": map[string]any{"labels": i.labels()}, "spec": map[string]any{"devices": all}}
}

// MissingText describes for users what the Device does not contain, and why. It returns "" if nothing is missing.
func (i Inventory) MissingText(labels map[string]string) string {
	var out []string
	if len(i.GPUs) > 0 {
		if memory, why := i.memory(labels); memory == 0 {
			out = append(out, "GPU memory: "+why+"; "+whyUnhealthy)
		}
		out = append(out, "GPU health: unknown without NVIDIA's library")
	}
	return strings.Join(append(out, i.Missing...), "; ")
}

// memory returns the memory size of each GPU in bytes, from the Node's labels. If the labels do not have the size, it
// returns 0 and the reason.
func (i Inventory) memory(labels map[string]string) (bytes int64, why string) {
	if slices.ContainsFunc(i.GPUs, func(g GPU) bool { return g.Model != i.GPUs[0].Model }) {
		return 0, "the Node's label " + memoryLabel + " describes one GPU model, but the node has several models"
	}
	if strings.Contains(labels[productLabel], "-MIG-") {
		return 0, fmt.Sprintf("the Node's label %s describes MIG instances, not GPUs (%s)", memoryLabel, labels[productLabel])
	}
	value, has := labels[memoryLabel]
	if !has {
		return 0, "the Node has no label " + memoryLabel + ", which NVIDIA's gpu-feature-discovery sets"
	}
	const most = 1 << 30 // in MiB, so that bytes do not overflow
	mebibytes, err := strconv.ParseInt(value, 10, 64)
	if err != nil || mebibytes <= 0 || mebibytes > most {
		return 0, fmt.Sprintf("the Node's label %s is %q, which is not a size in MiB", memoryLabel, value)
	}
	return mebibytes << 20, ""
}

// labels returns the labels of the Device. Koordlet sets the same labels.
func (i Inventory) labels() map[string]any {
	out := map[string]any{}
	if len(i.GPUs) == 0 {
		return out
	}
	out["node.koordinator.sh/gpu-vendor"] = "nvidia"
	model := strings.ReplaceAll(strings.TrimPrefix(i.GPUs[0].Model, "NVIDIA "), " ", "-")
	if same := !slices.ContainsFunc(i.GPUs, func(g GPU) bool { return g.Model != i.GPUs[0].Model }); same && isLabelValue(model) {
		out["node.koordinator.sh/gpu-model"] = model
	}
	if isLabelValue(i.Driver) {
		out["node.koordinator.sh/gpu-driver-version"] = i.Driver
	}
	return out
}

// isLabelValue reports whether a text can be the value of a label.
func isLabelValue(value string) bool {
	return value != "" && len(validation.IsValidLabelValue(value)) == 0
}

// topology returns the position of a device in the form of Koordinator's Device object. The socket is always -1
// (unknown), because koordlet also writes -1.
func (p PCI) topology() map[string]any {
	return map[string]any{"socketID": int64(-1), "nodeID": int64(p.Node), "pcieID": p.Root, "busID": p.Address}
}
