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

// deviceFiles are the patterns of device nodes that hooks give to containers.
var deviceFiles = []string{
	"nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset",
	"infiniband/rdma_cm", "infiniband/uverbs[0-9]*",
}

// verbsDirs are the directories where the kernel names the verbs devices of PCI functions.
const verbsDirs = "bus/pci/devices/*/infiniband_verbs/uverbs*"

// ReadHost reads which devices a node has, from the file systems usually mounted on
// /dev and /sys. It leaves out what does not exist.
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
		if _, known := h.Verbs[address]; !known { // a function with several verbs devices gets the first
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

// hugePages reads the sizes of huge pages. The kernel names them in kB here, and as 2MB in
// cgroup files.
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

// disks reads the numbers of whole disks, since cgroups limit only these.
func disks(sys fs.FS, h *lifecycle.Host) error {
	found, err := fs.Glob(sys, "block/*/dev")
	if err != nil {
		return fmt.Errorf("look for disks: %w", err)
	}
	for _, name := range found {
		number, err := fs.ReadFile(sys, name)
		if err != nil {
			continue // the disk was removed in the meantime
		}
		if h.Disks == nil {
			h.Disks = map[string]string{}
		}
		// The kernel writes a slash in a disk's name as an exclamation mark.
		h.Disks[strings.ReplaceAll(path.Base(path.Dir(name)), "!", "/")] = strings.TrimSpace(string(number))
	}
	return nil
}

// charDevice reads the numbers of a character device. It follows no symbolic link, since the
// target of a link in /dev may be anything.
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

// ReadDevice reads one device node by its path below /dev, from the file system usually
// mounted there: a character or block device, and no link.
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
