package lifecycle

// Host is what was found of a node's devices.
type Host struct {
	// Devices are device nodes by path below /dev.
	Devices map[string]Device
	// Verbs are the names of RDMA verbs devices, such as uverbs0, by the PCI
	// address of the function they belong to.
	Verbs map[string]string
	// HugePages are the sizes of huge pages the kernel has, as "2MB".
	HugePages []string
	// Disks are the numbers of whole disks, as 8:0, by name, as sda.
	Disks map[string]string
}
