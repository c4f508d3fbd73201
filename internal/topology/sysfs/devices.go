package sysfs

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// deviceFiles are patterns of the names below /dev of device nodes that hooks give to containers.
var deviceFiles = []string{
	"nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset",
	"infiniband/rdma_cm", "infiniband/uverbs[0-9]*",
}

// verbsDirs is the pattern of directories below /sys that have the names of the RDMA verbs devices of PCI functions.
const verbsDirs = "bus/pci/devices/*/infiniband_verbs/uverbs*"

// ReadHost reads the devices, disks, huge page sizes and memory nodes of a node, from the file systems that are usually
// mounted on /dev and /sys. Missing files are not an error.
func ReadHost(dev, sys fs.FS) (lifecycle.Host, error) {
	h := lifecycle.Host{Devices: map[string]lifecycle.Device{}, Verbs: map[string]string{}}
	for _, pattern := range deviceFiles {
		names, err := fs.Glob(dev, pattern)
		if err != nil {
			return h, fmt.Errorf("look for %s: %w", pattern, err)
		}
		for _, name := range names {
			if d, ok := charDevice(dev, name); ok {
				h.Devices[d.Path] = d
			}
		}
	}
	found, err := fs.Glob(sys, verbsDirs)
	if err != nil {
		return h, fmt.Errorf("look for %s: %w", verbsDirs, err)
	}
	slices.Sort(found)
	for _, name := range found {
		address := path.Base(path.Dir(path.Dir(name)))
		if _, known := h.Verbs[address]; !known { // if a PCI function has several verbs devices, the first one counts
			h.Verbs[address] = path.Base(name)
		}
	}
	if err := disks(sys, &h); err != nil {
		return h, err
	}
	h.MemoryNodes = memoryNodes(sys)
	return h, hugePages(sys, &h)
}

// memoryNodes reads which NUMA nodes have memory. It returns nil if the kernel does not report that.
func memoryNodes(sys fs.FS) []int {
	text, err := fs.ReadFile(sys, "devices/system/node/has_memory")
	if err != nil {
		return nil
	}
	nodes, _ := topology.ParseList(strings.TrimSpace(string(text))) // a malformed list counts as empty
	return nodes
}

// hugePages reads the sizes of huge pages from the names of directories, such as hugepages-2048kB. It converts a size
// to the form in the names of cgroup files, such as 2MB.
func hugePages(sys fs.FS, h *lifecycle.Host) error {
	found, err := fs.Glob(sys, "kernel/mm/hugepages/hugepages-*kB")
	if err != nil {
		return fmt.Errorf("look for huge pages: %w", err)
	}
	for _, name := range found {
		kB, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(path.Base(name), "hugepages-"), "kB"))
		switch {
		case err != nil:
		case kB >= 1<<20:
			h.HugePages = append(h.HugePages, fmt.Sprintf("%dGB", kB>>20))
		case kB >= 1<<10:
			h.HugePages = append(h.HugePages, fmt.Sprintf("%dMB", kB>>10))
		default:
			h.HugePages = append(h.HugePages, fmt.Sprintf("%dKB", kB))
		}
	}
	return nil
}

// disks reads the device numbers of whole disks. It needs no partitions, because cgroups limit only whole disks.
func disks(sys fs.FS, h *lifecycle.Host) error {
	found, err := fs.Glob(sys, "block/*/dev")
	if err != nil {
		return fmt.Errorf("look for disks: %w", err)
	}
	for _, name := range found {
		number, err := fs.ReadFile(sys, name)
		if err != nil {
			continue // the disk was removed after the directory was read
		}
		if h.Disks == nil {
			h.Disks = map[string]string{}
		}
		// The kernel writes a slash in a disk's name as an exclamation mark.
		h.Disks[strings.ReplaceAll(path.Base(path.Dir(name)), "!", "/")] = strings.TrimSpace(string(number))
	}
	return nil
}

// charDevice reads the device numbers of a character device. It does not follow symbolic links, because a link in /dev
// can lead to any file.
func charDevice(dev fs.FS, name string) (lifecycle.Device, bool) {
	info, err := fs.Lstat(dev, name)
	if err != nil || info.Mode()&fs.ModeCharDevice == 0 || strings.HasPrefix(path.Base(name), ".") {
		return lifecycle.Device{}, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return lifecycle.Device{}, false
	}
	return lifecycle.Device{
		Path: path.Join("/dev", name), Type: "c",
		Major: int64(unix.Major(stat.Rdev)), Minor: int64(unix.Minor(stat.Rdev)),
		FileMode: lifecycle.Some(uint32(info.Mode().Perm())),
	}, true
}

// ReadDevice reads the device node with a path below /dev, from the file system that is usually mounted on /dev. It
// returns false if the path is not a character or block device. It does not follow symbolic links.
func ReadDevice(dev fs.FS, path string) (lifecycle.Device, bool) {
	name, below := strings.CutPrefix(path, "/dev/")
	if !below || !fs.ValidPath(name) {
		return lifecycle.Device{}, false
	}
	if d, ok := charDevice(dev, name); ok {
		return d, true
	}
	info, err := fs.Lstat(dev, name)
	if err != nil || info.Mode().Type() != fs.ModeDevice {
		return lifecycle.Device{}, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return lifecycle.Device{}, false
	}
	return lifecycle.Device{
		Path: path, Type: "b", Major: int64(unix.Major(stat.Rdev)), Minor: int64(unix.Minor(stat.Rdev)),
		FileMode: lifecycle.Some(uint32(info.Mode().Perm())),
	}, true
}
