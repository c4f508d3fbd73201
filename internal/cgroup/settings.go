package cgroup

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// File names a cgroup file. In version 1 the controller is the directory where the file's
// hierarchy is mounted.
type File struct{ Controller, Name string }

// TextKind is how the text of a file is written and compared.
type TextKind int

// The kinds of text.
const (
	KindText      TextKind = iota // copied unchanged
	KindNumber                    // a decimal number
	KindShares                    // cpu.shares in version 1, the corresponding weight in version 2
	KindList                      // a kernel list, compared as a set
	KindBytes                     // bytes in whole pages, or unlimited
	KindSigned                    // a decimal number that may be negative
	KindBandwidth                 // a CPU quota or period in µs; version 2 has both in one file
	KindPerDevice                 // one number for each device; the setting is the number of one device
	KindDefault                   // a number; "default NUMBER" if the file also has numbers of single devices
)

// Setting describes one cgroup setting.
type Setting struct {
	Field lifecycle.Field
	Key   string // the version 2 file of Unified, the page size of Hugepages, disk and limit of IOLimit; else ""

	V1, V2 File // the zero File if that version has none
	Kind   TextKind
	// Min and Max limit numbers. Unlimited means that the value -1 stands for "no limit".
	Min, Max  int64
	Unlimited bool
}

// maxBandwidth is the largest quota in µs that the kernel stores (2^44-1).
const maxBandwidth = 1<<44 - 1

// The files of a cpuset partition, which gives a cgroup exclusive CPUs.
const (
	ExclusiveFile = "cpuset.cpus.exclusive"
	PartitionFile = "cpuset.cpus.partition"
)

// settings is the table of the settings that the agent knows. The agent can also write version 2 files that have no row
// in this table: it writes the requested text unchanged. FindSetting makes the settings for huge pages and disk limits.
//
// A child's CPU bandwidth, CPU list, memory node list and amounts of memory stay within the parent's.
// A value that grows is written to the parent first, and a value that shrinks to the child first.
//
// Other programs write these files, too:
//   - The runtime writes the files of a container at each UpdateContainer, with the values of its
//     stored spec.
//   - The kubelet writes shares, bandwidth and memory limit of a pod when the pod is made and when
//     it is resized, and the shares of QoS classes about every minute and at each pod change. With
//     the feature MemoryQoS it writes memory.min, memory.low and memory.high of pods and containers.
//   - The kubelet writes the cpuset of containers every 10 s, through the runtime: CPUs where its CPU
//     manager policy is static, memory nodes where its memory manager policy is Static.
//   - systemd writes the files of slices and scopes at daemon-reload and at each property change of the
//     unit.
var settings = []Setting{
	{
		Field: lifecycle.CPUShares, Kind: KindShares, Min: 2, Max: 262144,
		V1: File{"cpu", "cpu.shares"}, V2: File{"cpu", "cpu.weight"},
	},
	{
		Field: lifecycle.CPUQuota, Kind: KindBandwidth, Min: 1000, Max: maxBandwidth, Unlimited: true,
		V1: File{"cpu", "cpu.cfs_quota_us"}, V2: File{"cpu", "cpu.max"},
	},
	{
		Field: lifecycle.CPUPeriod, Kind: KindBandwidth, Min: 1000, Max: 1000000,
		V1: File{"cpu", "cpu.cfs_period_us"}, V2: File{"cpu", "cpu.max"},
	},
	{
		Field: lifecycle.CPUSetCPUs, Kind: KindList,
		V1: File{"cpuset", "cpuset.cpus"}, V2: File{"cpuset", "cpuset.cpus"},
	},
	{
		Field: lifecycle.CPUSetMems, Kind: KindList,
		V1: File{"cpuset", "cpuset.mems"}, V2: File{"cpuset", "cpuset.mems"},
	},
	{
		Field: lifecycle.MemoryLimit, Kind: KindBytes, Min: 4096, Max: math.MaxInt64, Unlimited: true,
		V1: File{"memory", "memory.limit_in_bytes"}, V2: File{"memory", "memory.max"},
	},
	memorySetting("memory.min"), memorySetting("memory.low"), memorySetting("memory.high"), memorySetting("memory.swap.max"),
	{
		Field: lifecycle.Unified, Key: "memory.oom.group", Kind: KindNumber, Max: 1,
		V2: File{"memory", "memory.oom.group"},
	},
	{
		Field: lifecycle.Unified, Key: "cpu.idle", Kind: KindNumber, Max: 1,
		V1: File{"cpu", "cpu.idle"}, V2: File{"cpu", "cpu.idle"},
	},
	{
		// Only kernels of Alibaba Cloud Linux and Anolis have this file.
		Field: lifecycle.Unified, Key: "cpu.bvt_warp_ns", Kind: KindSigned, Min: -1, Max: 2,
		V1: File{"cpu", "cpu.bvt_warp_ns"}, V2: File{"cpu", "cpu.bvt_warp_ns"},
	},
	{
		Field: lifecycle.Unified, Key: "cpu.max.burst", Kind: KindNumber, Max: maxBandwidth,
		V1: File{"cpu", "cpu.cfs_burst_us"}, V2: File{"cpu", "cpu.max.burst"},
	},
	{
		// The file exists since Linux 6.7, and a new cgroup's file is empty.
		Field: lifecycle.Unified, Key: ExclusiveFile, Kind: KindList,
		V2: File{"cpuset", ExclusiveFile},
	},
	{
		// When read, the file shows whether the kernel accepts the partition or why it does not.
		Field: lifecycle.Unified, Key: PartitionFile, Kind: KindText,
		V2: File{"cpuset", PartitionFile},
	},
	{
		// The kernel applies the weight on disks that use io.cost.
		Field: lifecycle.Unified, Key: "io.weight", Kind: KindDefault, Min: 1, Max: 10000,
		V2: File{"io", "io.weight"},
	},
	{
		// The kernel applies the weight on disks that use the scheduler BFQ.
		Field: lifecycle.Unified, Key: "io.bfq.weight", Kind: KindDefault, Min: 1, Max: 1000,
		V1: File{"blkio", "blkio.bfq.weight"}, V2: File{"io", "io.bfq.weight"},
	},
}

// memorySetting returns the row of the table settings for a version 2 file that has an amount of memory.
func memorySetting(name string) Setting {
	return Setting{
		Field: lifecycle.Unified, Key: name, Kind: KindBytes, Max: math.MaxInt64, Unlimited: true,
		V2: File{"memory", name},
	}
}

// Settings returns the table of settings. Callers must not change it.
func Settings() []Setting { return settings }

// FindSetting returns the setting of a field and key. For a Unified file that has no row in the table settings, it
// returns a setting of version 2 with plain text. For a Unified file that another field sets, it returns an error: the
// file would have two names, and two hooks could write it. It also returns an error for files that are no settings
// (cgroup.procs, cgroup.kill). Callers must not change the setting.
func FindSetting(field lifecycle.Field, key string) (*Setting, error) {
	switch field {
	case lifecycle.Unified:
		return findUnified(key)
	case lifecycle.Hugepages:
		return hugepages(key)
	case lifecycle.IOLimit:
		return ioLimit(key)
	}
	for i := range settings {
		if settings[i].Field == field {
			return &settings[i], nil
		}
	}
	return nil, fmt.Errorf("%v is not a cgroup setting: %w", field, errors.ErrUnsupported)
}

// hugepages returns the setting that limits huge pages of one size, such as "2MB". The kernel rounds the limit to whole
// pages of this size.
func hugepages(size string) (*Setting, error) {
	if _, err := pageBytes(size); err != nil {
		return nil, err
	}
	prefix := "hugetlb." + size
	return &Setting{
		Field: lifecycle.Hugepages, Key: size, Kind: KindBytes, Max: math.MaxInt64, Unlimited: true,
		V1: File{"hugetlb", prefix + ".limit_in_bytes"}, V2: File{"hugetlb", prefix + ".max"},
	}, nil
}

// pageBytes parses a size of huge pages in the form of cgroup file names: 64KB, 2MB, 1GB.
func pageBytes(size string) (int64, error) {
	for i, suffix := range []string{"KB", "MB", "GB"} {
		digits, ok := strings.CutSuffix(size, suffix)
		if n, err := strconv.ParseUint(digits, 10, 16); ok && err == nil && n > 0 && digits[0] != '0' && digits[0] != '+' {
			return int64(n) << (10 * (i + 1)), nil
		}
	}
	return 0, fmt.Errorf("%q is not a size of huge pages, such as 2MB", shorten(size))
}

// diskLimits has the limits that a disk can have, by their names in the version 2 file io.max.
var diskLimits = map[string]struct {
	v1   string // the file of this limit in version 1
	most int64  // the largest limit that the kernel stores
}{
	"rbps":  {"blkio.throttle.read_bps_device", math.MaxInt64},
	"wbps":  {"blkio.throttle.write_bps_device", math.MaxInt64},
	"riops": {"blkio.throttle.read_iops_device", math.MaxUint32 - 1},
	"wiops": {"blkio.throttle.write_iops_device", math.MaxUint32 - 1},
}

// ioLimit returns the setting of one limit of one disk. The key "8:0 rbps" means the bytes per second that tasks read
// from the disk with the device number 8:0.
func ioLimit(key string) (*Setting, error) {
	disk, direction, ok := strings.Cut(key, " ")
	limit, known := diskLimits[direction]
	if !ok || !known || !isDeviceNumber(disk) {
		return nil, fmt.Errorf("%q is not a limit of a disk, such as 8:0 rbps", shorten(key))
	}
	return &Setting{
		Field: lifecycle.IOLimit, Key: key, Kind: KindPerDevice, Min: 1, Max: limit.most, Unlimited: true,
		V1: File{"blkio", limit.v1}, V2: File{"io", "io.max"},
	}, nil
}

// isDeviceNumber reports whether text is a device number major:minor.
func isDeviceNumber(text string) bool {
	major, minor, ok := strings.Cut(text, ":")
	for _, n := range []string{major, minor} {
		v, err := strconv.ParseUint(n, 10, 20) // major numbers have 12 bits, and minor numbers 20
		ok = ok && err == nil && strconv.FormatUint(v, 10) == n
	}
	return ok
}

// findUnified returns the setting of the field Unified for a version 2 file.
func findUnified(key string) (*Setting, error) {
	for i := range settings {
		switch s := &settings[i]; {
		case s.Field == lifecycle.Unified && s.Key == key:
			return s, nil
		case s.Field != lifecycle.Unified && s.V2.Name == key:
			return nil, fmt.Errorf("%s is set by the field %v", key, s.Field)
		}
	}
	if strings.HasPrefix(key, "hugetlb.") {
		return nil, fmt.Errorf("%s is set by the field %v", key, lifecycle.Hugepages)
	}
	if key == "io.max" {
		return nil, fmt.Errorf("%s is set by the field %v", key, lifecycle.IOLimit)
	}
	controller, rest, dotted := strings.Cut(key, ".")
	invalid := func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789_.", r) && (r < 'A' || r > 'Z')
	}
	if !dotted || controller == "" || rest == "" || len(key) > maxComponent || strings.ContainsFunc(key, invalid) {
		return nil, fmt.Errorf("%q is not the name of a cgroup file", shorten(key))
	}
	if controller == "cgroup" {
		return nil, fmt.Errorf("%s is not a setting", key)
	}
	return &Setting{Field: lifecycle.Unified, Key: key, V2: File{controller, key}}, nil
}

// file returns the setting's file in a cgroup version.
func (s *Setting) file(v Version) (File, error) {
	f := s.V2
	if v == V1 {
		f = s.V1
	}
	if f == (File{}) {
		name := s.Key
		if name == "" {
			name = s.Field.String()
		}
		return File{}, fmt.Errorf("cgroup %v has no %s: %w", v, name, errors.ErrUnsupported)
	}
	return f, nil
}
