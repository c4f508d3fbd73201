package lifecycle

// Host lists the devices found on a node.
type Host struct {
	// Devices are device nodes by path below /dev.
	Devices map[string]Device
	// Verbs has the names of RDMA verbs devices, such as uverbs0, by the PCI address of their
	// function.
	Verbs map[string]string
	// HugePages are the huge page sizes of the kernel, such as "2MB".
	HugePages []string
	// Disks has the device numbers of whole disks, such as 8:0, by name, such as sda.
	Disks map[string]string
	// MemoryNodes are the NUMA nodes that have memory, in order.
	MemoryNodes []int
	// HookFiles are the files in directories of OCI hooks, in order, where they are known.
	HookFiles []HookFile `json:",omitempty"`
}
