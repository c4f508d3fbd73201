// Package captured packs the kernel's files about a machine into an archive, and makes a machine from such an archive.
// It packs only the files of a fixed list, so the archive has no names of users and no serial numbers. An archive may
// come from an untrusted person, so Open writes no file and limits the sizes that it reads.
package captured

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/sysfs"
)

// archiveRoot is the directory of all files in an archive.
const archiveRoot = "trimtab-capture"

// Limits of an archive. A node with 1024 CPUs has about 20,000 files with 2 MiB of text.
const (
	maxFiles        = 200_000
	maxFileBytes    = 64 << 10 // of one file
	maxTotalBytes   = 64 << 20 // of all files together
	maxArchiveBytes = 32 << 20 // of the compressed archive
)

// archivedFiles are the files of an archive, as patterns below the root of the node. They describe only the
// hardware and the kernel: none has names of users, pods or hosts, serial numbers, or network addresses.
var archivedFiles = []string{
	"sys/devices/system/cpu/online", "sys/devices/system/cpu/present", "sys/devices/system/cpu/possible",
	"sys/devices/system/cpu/offline", "sys/devices/system/cpu/isolated", "sys/devices/system/cpu/nohz_full",
	"sys/devices/system/cpu/cpu*/topology/*_id", "sys/devices/system/cpu/cpu*/topology/core_cpus_list",
	"sys/devices/system/cpu/cpu*/topology/thread_siblings_list", "sys/devices/system/cpu/cpu*/cpu_capacity",
	"sys/devices/system/cpu/cpu*/cpufreq/base_frequency", "sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_max_freq",
	"sys/devices/system/cpu/cpu*/cache/index*/type", "sys/devices/system/cpu/cpu*/cache/index*/level",
	"sys/devices/system/cpu/cpu*/cache/index*/shared_cpu_list",
	"sys/devices/cpu_*/cpus",
	"sys/devices/system/node/has_memory", "sys/devices/system/node/online",
	"sys/devices/system/node/node*/cpulist", "sys/devices/system/node/node*/meminfo", "sys/devices/system/node/node*/distance",
	"sys/devices/system/node/node*/hugepages/*/nr_hugepages",
	"sys/devices/system/node/node*/access0/initiators/read_bandwidth",
	"sys/devices/virtual/memory_tiering/*/nodelist",
	"sys/kernel/mm/hugepages/*/nr_hugepages",
	"sys/bus/pci/devices/*/class", "sys/bus/pci/devices/*/numa_node", "sys/bus/pci/devices/*/local_cpulist",
	"sys/block/*/dev",
	"sys/fs/cgroup/cgroup.controllers",
	"proc/sys/kernel/osrelease", "proc/meminfo",
}

// Node is the node that an archive describes.
type Node struct {
	Machine *topology.Machine
	// CgroupV1 reports that the node had no cgroup v2 hierarchy at /sys/fs/cgroup.
	CgroupV1 bool
	// HugePages are the node's sizes of huge pages, such as 2MB. Disks has the device number of each disk, by the
	// disk's name.
	HugePages []string
	Disks     map[string]string
}

// Pack writes the archive of a node whose root directory is host, and returns the number of files in the archive. It
// leaves out files that it cannot read, such as those of offline CPUs, and files that are too large. It returns an
// error if it cannot write the archive, or if the node has no list of online CPUs.
func Pack(w io.Writer, host fs.FS) (files int, err error) {
	if _, err := fs.Stat(host, "sys/devices/system/cpu/online"); err != nil {
		return 0, fmt.Errorf("find the list of online CPUs: %w", err)
	}
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, pattern := range archivedFiles {
		names, err := fs.Glob(host, pattern)
		if err != nil {
			return files, fmt.Errorf("find the files %s: %w", pattern, err)
		}
		for _, name := range names {
			text, err := fs.ReadFile(host, name)
			if err != nil || len(text) > maxFileBytes {
				continue
			}
			// The size must be the length of the text, because stat reports the size of a page for every file in /sys.
			h := &tar.Header{Name: path.Join(archiveRoot, name), Mode: 0o444, Size: int64(len(text)), Format: tar.FormatPAX}
			err = t.WriteHeader(h)
			if err == nil {
				_, err = t.Write(text)
			}
			if err != nil {
				return files, fmt.Errorf("pack %s: %w", name, err)
			}
			files++
		}
	}
	return files, errors.Join(t.Close(), z.Close())
}

// IsArchive reports whether a text begins like a gzip file. Archives are gzip files.
func IsArchive(text []byte) bool { return bytes.HasPrefix(text, []byte{0x1f, 0x8b}) } // RFC 1952, 2.3.1

// Open reads an archive that Pack wrote. It returns an error for input that is no such archive, and for an archive that
// is too large, has a file that Pack does not pack, or describes no valid machine.
func Open(r io.Reader) (*Node, error) {
	files, err := unpack(io.LimitReader(r, maxArchiveBytes))
	if err != nil {
		return nil, fmt.Errorf("captured node: %w", err)
	}
	host, err := memoryFS(files)
	if err != nil {
		return nil, fmt.Errorf("captured node: %w", err)
	}
	sys, err := fs.Sub(host, "sys")
	if err != nil {
		return nil, fmt.Errorf("captured node: %w", err)
	}
	n := &Node{}
	if n.Machine, err = sysfs.Read(sys); err != nil {
		return nil, fmt.Errorf("captured node: %w", err)
	}
	var h lifecycle.Host
	if h, err = sysfs.ReadHost(emptyDev{}, sys); err != nil {
		return nil, fmt.Errorf("captured node: %w", err)
	}
	n.HugePages, n.Disks = h.HugePages, h.Disks
	_, v2 := files["sys/fs/cgroup/cgroup.controllers"]
	n.CgroupV1 = !v2
	return n, nil
}

// emptyDev is an empty directory /dev, because an archive has no device nodes.
type emptyDev struct{}

// Open returns an error, because no file exists.
func (emptyDev) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// unpack returns the files of an archive, by their paths relative to the node's root.
func unpack(r io.Reader) (map[string][]byte, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("the input is not a compressed archive: %w", err)
	}
	files, total := map[string][]byte{}, 0
	for t := tar.NewReader(io.LimitReader(z, 3*maxTotalBytes)); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the archive: %w", err)
		}
		name, err := nameOf(h)
		if err != nil {
			return nil, err
		}
		if _, twice := files[name]; twice {
			return nil, fmt.Errorf("the archive has %q twice", name)
		}
		total += int(h.Size)
		if len(files) >= maxFiles || total > maxTotalBytes {
			return nil, fmt.Errorf("the archive has more than %d files or %d bytes", maxFiles, maxTotalBytes)
		}
		text, err := io.ReadAll(t)
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", name, err)
		}
		files[name] = text
	}
	if len(files) == 0 {
		return nil, errors.New("the archive is empty")
	}
	return files, nil
}

// nameOf returns the path of an archived file relative to the node's root. It returns an error for a file that an
// archive must not have.
func nameOf(h *tar.Header) (string, error) {
	shown := h.Name[:min(len(h.Name), 100)]
	if h.Typeflag != tar.TypeReg {
		return "", fmt.Errorf("%q is not a regular file: trimtab capture packs only regular files", shown)
	}
	name, below := strings.CutPrefix(h.Name, archiveRoot+"/")
	known := below && fs.ValidPath(name) && slices.ContainsFunc(archivedFiles, func(pattern string) bool {
		is, err := path.Match(pattern, name)
		return is && err == nil
	})
	switch {
	case !known:
		return "", fmt.Errorf("%q is not a file that trimtab capture packs", shown)
	case h.Size < 0 || h.Size > maxFileBytes:
		return "", fmt.Errorf("%q has %d bytes; at most %d are allowed", shown, h.Size, maxFileBytes)
	}
	return name, nil
}

// memoryFS returns a file system in memory with the given files. It writes the files to an uncompressed zip archive,
// because the standard library can use such an archive as a file system.
func memoryFS(files map[string][]byte) (fs.FS, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err == nil {
			_, err = f.Write(files[name])
		}
		if err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
}
