package lifecycle

// Host lists the devices found on a node.
type Host struct {
	// Devices has the device nodes below /dev, by path.
	Devices map[string]Device
	// Verbs has the names of RDMA verbs devices, such as uverbs0, by PCI address.
	Verbs map[string]string
	// HugePages are the huge page sizes that the kernel supports, such as "2MB".
	HugePages []string
	// Disks has the device numbers of whole disks, such as 8:0, by name, such as sda.
	Disks map[string]string
	// MemoryNodes are the sorted ids of the NUMA nodes that have memory.
	MemoryNodes []int
	// HookFiles are the files in the directories of OCI hooks, sorted by path. The field is empty for a real host,
	// and set only for a host from a recording or from a file that describes a node.
	HookFiles []HookFile `json:",omitempty"`
	// CDI are the devices in the node's CDI specifications. The field is set only for a host from a file that
	// describes a node.
	CDI []NodeDevice `json:",omitempty"`
}
