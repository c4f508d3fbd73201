package intent

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Keys of Koordinator (1.7) that the agent reads.
const (
	KoordQoSClass        = "koordinator.sh/qosClass"
	KoordResourceStatus  = "scheduling.koordinator.sh/resource-status"
	KoordExtended        = "node.koordinator.sh/extended-resource-spec"
	KoordDevices         = "scheduling.koordinator.sh/device-allocated"
	KoordCPUQoS          = "koordinator.sh/cpuQOS"
	KoordResctrl         = "node.koordinator.sh/resctrl"
	KoordCoreSchedGroup  = "koordinator.sh/core-sched-group-id"
	KoordCoreSchedPolicy = "koordinator.sh/core-sched-policy"
	KoordBlkioQoS        = "koordinator.sh/blkioQOS"
	KoordOOMScore        = "koordinator.sh/oom-score-adj"
	KoordOOMScoreSpec    = "koordinator.sh/oom-score-adj-spec"
	KoordGPUIsolation    = "koordinator.sh/gpu-isolation-provider"
)

// Names of Koordinator's extended resources.
const (
	batchCPU       = "kubernetes.io/batch-cpu"
	batchMemory    = "kubernetes.io/batch-memory"
	gpuCore        = "koordinator.sh/gpu-core"
	gpuMemory      = "koordinator.sh/gpu-memory"
	gpuMemoryRatio = "koordinator.sh/gpu-memory-ratio"
)

// maxGPUMinor is the highest minor number of a GPU. It also limits the numbers of GPUs and RDMA functions of a pod.
const maxGPUMinor = 255

// maxSuspiciousMilli is the limit below which a batch-cpu amount was probably meant in CPUs instead of
// milli-CPUs. A request for less than a tenth of a CPU is unlikely.
const maxSuspiciousMilli = 100

// koordClasses maps Koordinator's QoS classes, which are case sensitive.
var koordClasses = map[string]Class{
	"LSE": Dedicated, "LSR": Dedicated, "LS": Shared, "BE": Reclaimed, "SYSTEM": System,
}

// readKoordinator reads Koordinator's labels and annotations, and the batch resources of the pod's spec.
func readKoordinator(t *podTexts, spec *lifecycle.PodSpec, out *Pod) {
	if name := t.label(KoordQoSClass); name != "" {
		if class, known := koordClasses[name]; known {
			out.Class, out.ClassName = Sourced[Class]{class, KoordQoSClass}, name
		} else {
			out.reportMalformed(KoordQoSClass, name, "not a QoS class: want LSE, LSR, LS, BE or SYSTEM, in capitals")
		}
	}
	readResourceStatus(t, out)
	readResourceSpec(t, out)
	readExtended(t, out)
	readBatchSpec(spec, out)
	readDevices(t, out)
	readCPUQoS(t, out)
	readOOMScore(t, out)
	readBlkioQoS(t, out)
	readResctrl(t, out)
	readCoreSched(t, out)
}

// readResourceStatus reads the annotation KoordResourceStatus: the CPUs that a scheduler assigned to the pod, and the
// NUMA nodes that it chose for the pod's CPUs.
func readResourceStatus(t *podTexts, out *Pod) {
	var status struct {
		CPUSet string `json:"cpuset"`
		Nodes  []struct {
			Node      int                 `json:"node"`
			Resources map[string]quantity `json:"resources"`
		} `json:"numaNodeResources"`
	}
	if !t.decode(KoordResourceStatus, &status, out) {
		return
	}
	ids, err := topology.ParseList(status.CPUSet)
	if err != nil {
		out.reportMalformed(KoordResourceStatus, status.CPUSet, "cpuset: %v", err)
		return
	}
	if len(ids) > 0 {
		out.CPUs = Sourced[[]int]{ids, KoordResourceStatus}
	}
	var nodes []int
	for _, n := range status.Nodes {
		for _, r := range []string{"cpu", batchCPU} {
			amount, isSet := n.Resources[r]
			if !isSet {
				continue
			}
			v, err := amount.integer()
			switch {
			case err != nil:
				out.reportMalformed(KoordResourceStatus, string(amount), "numaNodeResources: %s: %v", r, err)
			case n.Node < 0 || n.Node > topology.MaxID:
				out.reportMalformed(KoordResourceStatus, fmt.Sprint(n.Node), "numaNodeResources: there is no such NUMA node")
			case v > 0 && !slices.Contains(nodes, n.Node):
				nodes = append(nodes, n.Node)
			}
		}
	}
	if len(nodes) > 0 {
		out.Nodes = Sourced[[]int]{nodes, KoordResourceStatus}
	}
}

// readExtended reads the annotation KoordExtended: the batch resources of each container.
func readExtended(t *podTexts, out *Pod) {
	var spec struct {
		Containers map[string]struct {
			Requests map[string]quantity `json:"requests"`
			Limits   map[string]quantity `json:"limits"`
		} `json:"containers"`
	}
	if !t.decode(KoordExtended, &spec, out) || len(spec.Containers) == 0 {
		return
	}
	batch := make(map[string]Batch, len(spec.Containers))
	for _, name := range sortedKeys(spec.Containers) {
		c := spec.Containers[name]
		var b Batch
		for _, f := range []struct {
			into *int64
			from map[string]quantity
			key  string
		}{
			{&b.RequestCPU, c.Requests, batchCPU},
			{&b.LimitCPU, c.Limits, batchCPU},
			{&b.LimitMemory, c.Limits, batchMemory},
		} {
			text, isSet := f.from[f.key]
			if !isSet {
				continue
			}
			v, err := text.integer()
			if err != nil {
				out.reportMalformed(KoordExtended, string(text), "container %s: %s: %v", printable(name), f.key, err)
				return
			}
			*f.into = v
			if f.key == batchCPU && v > 0 && v < maxSuspiciousMilli {
				out.reportWarning(KoordExtended, string(text), "container %s: %s counts milli-CPUs: %d is %.3f of a CPU; %d CPUs would be %d",
					printable(name), batchCPU, v, float64(v)/1000, v, v*1000)
			}
		}
		batch[name] = b
	}
	out.Batch = Sourced[map[string]Batch]{batch, KoordExtended}
}

// readShare reads the share of a GPU that the scheduler allocated; nil if it allocated the whole GPU.
func readShare(r map[string]quantity) (*GPUShare, error) {
	ratio, isSet := r[gpuMemoryRatio]
	if !isSet {
		return nil, fmt.Errorf("%s is missing", gpuMemoryRatio)
	}
	percent, err := ratio.integer()
	if err != nil || percent >= 100 {
		return nil, err
	}
	memory, isSet := r[gpuMemory]
	if !isSet {
		return nil, fmt.Errorf("%s is missing", gpuMemory)
	}
	s := &GPUShare{}
	if s.Memory, err = memory.integer(); err != nil {
		return nil, err
	}
	if core, isSet := r[gpuCore]; isSet {
		s.Core, err = core.integer()
	}
	return s, err
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
