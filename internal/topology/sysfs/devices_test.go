package sysfs

import (
	"io/fs"
	"os"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

func TestHost(t *testing.T) {
	char := func(major, minor uint32) *fstest.MapFile {
		return &fstest.MapFile{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o660, Sys: &syscall.Stat_t{Rdev: unix.Mkdev(major, minor)}}
	}
	dev := fstest.MapFS{
		"nvidia0": char(195, 0), "nvidia10": char(195, 10), "nvidiactl": char(195, 255), "nvidia-uvm": char(510, 0),
		"nvidia1":              &fstest.MapFile{Mode: 0o644}, // no device
		"nvidia2":              &fstest.MapFile{Mode: fs.ModeDevice | 0o660, Sys: &syscall.Stat_t{}},
		"nvidia-caps/cap1":     char(511, 1),
		"infiniband/uverbs0":   char(231, 192),
		"infiniband/rdma_cm":   char(10, 58),
		"infiniband/umad0":     char(231, 0),
		"null":                 char(1, 3),
		"infiniband/uverbs1":   &fstest.MapFile{Mode: fs.ModeDevice | fs.ModeCharDevice}, // no numbers
		"infiniband/uverbsold": char(231, 200),
	}
	sys := fstest.MapFS{
		"bus/pci/devices/0000:3b:00.0/infiniband_verbs/uverbs0/dev": {},
		"bus/pci/devices/0000:3b:00.2/infiniband_verbs/uverbs7/dev": {},
		"bus/pci/devices/0000:3b:00.2/infiniband_verbs/uverbs5/dev": {},
		"bus/pci/devices/0000:3b:00.4/infiniband_verbs":             {Mode: fs.ModeDir},
		"bus/pci/devices/0000:00:1f.0/vendor":                       {},
		"block/sda/dev":                                             {Data: []byte("8:0\n")},
		"block/sda/sda1/dev":                                        {Data: []byte("8:1\n")},
		"block/cciss!c0d0/dev":                                      {Data: []byte("104:0\n")},
		"kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":         {},
		"kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages":      {},
		"kernel/mm/hugepages/hugepages-64kB/nr_hugepages":           {},
		"kernel/mm/hugepages/hugepages-xkB/nr_hugepages":            {},
	}
	got, err := ReadHost(dev, sys)
	if err != nil {
		t.Fatal(err)
	}
	node := func(path string, major, minor int64) lifecycle.Device {
		return lifecycle.Device{Path: path, Type: "c", Major: major, Minor: minor, FileMode: lifecycle.Some[uint32](0o660)}
	}
	want := lifecycle.Host{Devices: map[string]lifecycle.Device{}, Verbs: map[string]string{"0000:3b:00.0": "uverbs0", "0000:3b:00.2": "uverbs5"}, HugePages: []string{"1GB", "2MB", "64KB"},
		Disks: map[string]string{"sda": "8:0", "cciss/c0d0": "104:0"}}
	for _, d := range []lifecycle.Device{
		node("/dev/nvidia0", 195, 0), node("/dev/nvidia10", 195, 10), node("/dev/nvidiactl", 195, 255), node("/dev/nvidia-uvm", 510, 0),
		node("/dev/infiniband/uverbs0", 231, 192), node("/dev/infiniband/rdma_cm", 10, 58),
	} {
		want.Devices[d.Path] = d
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestHostOfThisMachine: reading the devices of this machine is never an error.
func TestHostOfThisMachine(t *testing.T) {
	if _, err := ReadHost(os.DirFS("/dev"), os.DirFS("/sys")); err != nil {
		t.Error(err)
	}
	if d, ok := charDevice(os.DirFS("/dev"), "null"); !ok || d.Major != 1 || d.Minor != 3 {
		t.Errorf("/dev/null is %+v", d)
	}
}
