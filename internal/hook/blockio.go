package hook

import (
	"strconv"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// ByClass has a value for each QoS class of Koordinator. LSR is also the value for class LSE. If a class has the zero
// value of T, the hook sets nothing for pods of this class.
type ByClass[T comparable] struct{ LSR, LS, BE T }

// Of returns the value for the pod's class; the zero value for pods without a class.
func (b ByClass[T]) Of(p *intent.Pod) (of T) {
	switch p.Class.V {
	case intent.Dedicated:
		return b.LSR
	case intent.Shared:
		return b.LS
	case intent.Reclaimed:
		return b.BE
	}
	return of
}

// BlockIO divides disk bandwidth between pods. The pod's QoS class determines the weight of the pod, and the class of
// its containers in the runtime's block I/O configuration. A pod can request another class. The hook also sets limits
// that a pod requests. The limits are those of Koordinator 1.7, strategy BlkIO.
type BlockIO struct {
	Classes ByClass[string] // names of block I/O classes of the runtime's configuration
	Weights ByClass[int]    // values for io.weight, 1 to 10000
	// WeightFile is the cgroup file for weights, io.weight or io.bfq.weight; "" if the kernel has neither.
	WeightFile string
	// PodWide is true with cgroup v2, where a limit on the pod's cgroup also applies to the containers in it. If
	// PodWide is false, the hook limits each container.
	PodWide bool
	// Disks has the device numbers of the node's disks, but not of partitions. A key is the name of a disk, such as
	// sda, and the value is its device number, such as 8:0.
	Disks map[string]string
}

// The files for weights.
const (
	ioWeightFile  = "io.weight"
	bfqWeightFile = "io.bfq.weight"
)

// BlockIOOptions tunes the block I/O hook.
type BlockIOOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// LSRWeight is the io.weight of LSE and LSR pods; 0 does not change it.
	LSRWeight int `json:"lsrWeight" check:"0..10000"`
	// LSWeight is the io.weight of LS pods; 0 does not change it.
	LSWeight int `json:"lsWeight" check:"0..10000"`
	// BEWeight is the io.weight of BE pods; 0 does not change it.
	BEWeight int `json:"beWeight" check:"0..10000"`
	// LSRClass is the class of the runtime's block I/O configuration for containers of LSE and
	// LSR pods; empty means no class. If the runtime's configuration does not have the class,
	// the runtime refuses the container.
	LSRClass string `json:"lsrClass" check:"class"`
	// LSClass is the class of the runtime's block I/O configuration for containers of LS pods; empty means no class.
	LSClass string `json:"lsClass" check:"class"`
	// BEClass is the class of the runtime's block I/O configuration for containers of BE pods; empty means no class.
	BEClass string `json:"beClass" check:"class"`
}

// Make makes the hook for a node.
func (o BlockIOOptions) Make(n Node, _ *Options) (Hook, error) {
	h := BlockIO{
		Weights: ByClass[int]{LSR: o.LSRWeight, LS: o.LSWeight, BE: o.BEWeight},
		Classes: ByClass[string]{LSR: o.LSRClass, LS: o.LSClass, BE: o.BEClass},
		PodWide: n.Unified(), Disks: n.Host().Disks,
	}
	for _, file := range []string{ioWeightFile, bfqWeightFile} {
		if h.WeightFile == "" && n.Probe(file).Support != lifecycle.NotSupported {
			h.WeightFile = file
		}
	}
	return h, nil
}

// Info describes the hook.
func (h BlockIO) Info() Info {
	i := Info{
		Name:           "blockIO",
		About:          "disk I/O: limits that a pod requests, weights by QoS class, and block I/O classes of the runtime's configuration",
		Stages:         lifetimeEvents(),
		Reads:          []string{intent.KoordQoSClass, intent.KoordBlkioQoS, intent.TrimtabBlockIOClass, intent.RubikPreemptable, intent.RubikBlkioLimit},
		Sets:           []lifecycle.Field{lifecycle.BlockIOClass, lifecycle.IOLimit},
		SetsOnPod:      []lifecycle.Field{lifecycle.IOLimit, lifecycle.Unified},
		KernelFeatures: []string{"io.max"},
		Compose:        "no other hook sets these fields and files",
		TestedOn:       "a model of the kernel that is compared with kernels, for limits and weights; a model of the runtime, for classes",
		Differs: []string{
			"only blocks of type device are supported: the agent cannot find the disk of a volume, and reports blocks of other types",
			"with cgroup v2 the limits are set on the pod, and with v1 on each container, because v1 would not apply a pod's limits to its containers",
			"weights, latencies and cost models are not read from pods, because they are properties of the disk; weights are set by QoS class (hooks.blockIO)",
			"with cgroup v2 the kernel's io controller must be enabled for pods; the kubelet does not enable it",
			"the kernel applies a weight only if io.cost or the scheduler BFQ is active for the disk; the agent does not check this",
			"a class of the runtime's configuration can only be set when a container is created; a runtime without such a configuration ignores it",
		},
	}
	if h.Weights != (ByClass[int]{}) {
		i.KernelFeatures = append(i.KernelFeatures, ioWeightFile+"|"+bfqWeightFile)
	}
	return i
}

// Propose sets the limits that the pod requests. It also sets the weight of a pod, or the block I/O class of a
// container.
func (h BlockIO) Propose(in *Input, out *Output) {
	if in.Intent.Disks.IsSet() && h.PodWide == (in.Container == "") {
		h.setLimits(in, out)
	}
	if in.Container == "" {
		h.setWeight(in, out)
		return
	}
	name, why := h.Classes.Of(in.Intent), lifecycle.Reason{Hook: "blockIO", Source: in.Intent.Class.Key, Text: "configured for the pod's class"}
	if own := in.Intent.BlockIOClass; own.IsSet() {
		name, why.Source, why.Text = own.V, own.Key, "requested by the pod"
	}
	if name != "" {
		out.setText(in, lifecycle.BlockIOClass, "", name, why)
	}
}

// setWeight sets the weight of a pod.
func (h BlockIO) setWeight(in *Input, out *Output) {
	weight := h.Weights.Of(in.Intent)
	if weight == 0 || h.WeightFile == "" {
		return
	}
	if h.WeightFile == bfqWeightFile {
		weight = min(weight, 1000)
	}
	out.setFile(in, h.WeightFile, strconv.Itoa(weight), lifecycle.Reason{Hook: "blockIO", Source: in.Intent.Class.Key, Text: "configured for the pod's class"})
}

// setLimits sets the limits of every disk that the pod names. If the pod names a disk twice, the
// first limit counts.
func (h BlockIO) setLimits(in *Input, out *Output) {
	for _, l := range in.Intent.Disks.V {
		disk, err := h.deviceNumber(l.Disk)
		if err != "" {
			out.decline(in.Intent.Disks.Key, l.Disk, err)
			continue
		}
		for _, d := range []struct {
			name  string
			limit int64
		}{{"rbps", l.ReadBPS}, {"wbps", l.WriteBPS}, {"riops", l.ReadIOPS}, {"wiops", l.WriteIOPS}} {
			if d.limit > 0 {
				out.Values = append(out.Values, lifecycle.Value{
					Field: lifecycle.IOLimit, Scope: in.Scope(), Key: disk + " " + d.name, Int: d.limit,
					Why: lifecycle.Reason{Hook: "blockIO", Source: in.Intent.Disks.Key, Text: "the pod's limit of " + l.Disk},
				})
			}
		}
	}
}

// deviceNumber returns the device number of a disk, or the reason why the node has no such disk. A pod can name a disk
// by its name or by its device number.
func (h BlockIO) deviceNumber(name string) (number, problem string) {
	for disk, n := range h.Disks {
		if name == disk || name == n {
			return n, ""
		}
	}
	return "", "blockIO: this node has no such disk; limits are for whole disks, not for their partitions"
}
