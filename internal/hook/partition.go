package hook

import "github.com/trimtab/trimtab/internal/lifecycle"

// Partition makes the cgroups of pods with exclusive CPUs remote cpuset partitions, so that the kernel
// removes these CPUs from all other cpusets. Linux 6.7 describes remote partitions in
// Documentation/admin-guide/cgroup-v2.
type Partition struct {
	// KernelSupport reports whether the kernel has the file cpuset.cpus.exclusive. Kernels with this file also have
	// remote partitions.
	KernelSupport lifecycle.Finding
}

// The cgroup files for the CPUs and for the state of a partition.
const (
	ExclusiveFile = "cpuset.cpus.exclusive"
	PartitionFile = "cpuset.cpus.partition"
)

// PartitionOptions tunes the hook that makes a cpuset partition for each pod that owns CPUs.
type PartitionOptions struct {
	// Enabled switches the hook on. The hook has an effect only with cgroup v2 and Linux 6.7 or later. It is off by
	// default, because services of the host cannot use the exclusive CPUs of a partition.
	Enabled bool `json:"enabled"`
}

// Make makes the hook for a node.
func (PartitionOptions) Make(n Node, _ *Options) (Hook, error) {
	return Partition{KernelSupport: n.Probe(ExclusiveFile)}, nil
}

// Info describes the hook.
func (Partition) Info() Info {
	return Info{
		Name:           "partition",
		About:          "the kernel keeps all other processes, also services of the host, off the CPUs that a pod owns",
		Stages:         lifetimeEvents(),
		SetsOnPod:      []lifecycle.Field{lifecycle.Unified},
		KernelFeatures: []string{ExclusiveFile},
		Compose: "works in addition to the hook cpuset. If the kernel refuses or ends a partition, the CPU lists of cpuset stay in force. A pod does not become a partition if one of its live containers owns no CPUs, " +
			"if the pod lends its CPUs, or if the kubelet's static CPU manager assigned the CPUs",
		TestedOn: "Linux 6.12 with containerd over NRI in a virtual machine (`test/vm`), and a model that is compared with recordings of that kernel",
	}
}

// Propose makes a pod's own cgroup a partition.
func (h Partition) Propose(in *Input, out *Output) {
	if in.Container != "" || in.ExclusiveCPUs == "" || h.KernelSupport.Support == lifecycle.NotSupported {
		return
	}
	why := lifecycle.Reason{Hook: "partition", Source: in.AssignedBy, Text: "the pod's containers own these CPUs and share them with no other pod"}
	out.setFile(in, ExclusiveFile, in.ExclusiveCPUs, why)
	out.setFile(in, PartitionFile, "root", why)
}
