package hook

import "github.com/trimtab/trimtab/internal/lifecycle"

// Partition makes pods with exclusive CPUs remote cpuset partitions, so that the kernel removes
// these CPUs from all other cpusets: kernel documentation admin-guide/cgroup-v2, Linux 6.7.
type Partition struct {
	// KernelSupport says whether the kernel has the file, which came with remote partitions.
	KernelSupport lifecycle.Finding
}

// Files of a partition: its CPUs, and its state.
const (
	ExclusiveFile = "cpuset.cpus.exclusive"
	PartitionFile = "cpuset.cpus.partition"
)

// PartitionOptions tunes the hook that makes pods which own CPUs cpuset partitions.
type PartitionOptions struct {
	// Enabled switches the hook on. It needs cgroup v2 and Linux 6.7, and changes
	// nothing elsewhere. Off by default: owned CPUs vanish from everybody, services
	// of the host among them.
	Enabled bool `json:"enabled"`
}

// AllOn is the hook with everything switched on.
func (PartitionOptions) AllOn() Hook { return Partition{} }

// Make makes the hook for a node.
func (PartitionOptions) Make(n Node, _ *Options) (Hook, error) {
	return Partition{KernelSupport: n.Probe(ExclusiveFile)}, nil
}

// Info describes the hook.
func (Partition) Info() Info {
	return Info{
		Name:   "partition",
		About:  "the kernel keeps all other processes off owned CPUs, also services of the host",
		Stages: lifetimeEvents(),
		Pod:    []lifecycle.Field{lifecycle.Unified},
		Kernel: []string{ExclusiveFile},
		Compose: "in addition to cpuset, whose CPU lists stay in force if the kernel refuses or ends a partition. A pod is no partition if one of its live containers owns no CPUs, " +
			"if it lends its CPUs, or if the kubelet's static CPU manager assigned them",
		TestedOn: "Linux 6.12 with containerd over NRI in a virtual machine (`test/vm`), and a model that is compared with recordings of that kernel",
	}
}

// Propose makes a pod's own cgroup a partition.
func (h Partition) Propose(in *Input, out *Output) {
	if in.Container != "" || in.Exclusive == "" || h.KernelSupport.Support == lifecycle.NotSupported {
		return
	}
	why := lifecycle.Reason{Hook: "partition", Source: in.AssignedBy, Text: "its containers own these CPUs and share them with no one"}
	out.file(in, ExclusiveFile, in.Exclusive, why)
	out.file(in, PartitionFile, "root", why)
}
