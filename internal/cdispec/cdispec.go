// Package cdispec reads the node's specifications of the Container Device Interface (CDI). A specification is a file
// that lists devices. A runtime can inject each device by name. For each device, the file says what the device adds to
// a container.
//
// The CDI library parses and validates the files. The package limits the size of files, and reports each invalid file.
// An invalid file does not affect the devices of other files. The package stores nothing between calls.
package cdispec

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// maxSpecFile is the largest size of a specification, in bytes. The specification of a node with many GPUs has about
// 100 kB.
const maxSpecFile = 4 << 20

// Directories returns the directories with specifications that runtimes read. A later directory has precedence.
func Directories() []string { return []string{cdi.DefaultStaticDir, cdi.DefaultDynamicDir} }

// Device is a device that the node's runtime can inject by its name.
type Device struct {
	Name string // the qualified name: vendor/class=name
	Kind string // the first part of the name: vendor/class
	// Nodes are the device nodes that this device adds to a container; often none. Major and Minor are 0 if neither the
	// specification nor the host's device node has the numbers.
	Nodes []lifecycle.Device
	// Env are the environment variables that this device adds to a container, as NAME=value.
	Env  []string
	File string // the path of the specification that defines the device
}

// Fault is the reason why a file or directory was not read, or why a device that a file defines is not used.
type Fault struct {
	File   string // the path of the file or directory
	Reason string
}

// String returns the path and the reason in one line.
func (f Fault) String() string { return f.File + ": " + f.Reason }

// Read reads all specifications in directories, which may be missing. It returns the devices, sorted by name, and the
// faults of files. If two directories define the same device, Read uses the later directory. If two files of one
// directory define the same device, no runtime injects the device. Read then returns a fault for each of the two files,
// but not the device.
func Read(dirs []string) (devices []Device, faults []Fault) {
	found := map[string]Device{}
	for _, dir := range dirs {
		here, bad := readDirectory(dir)
		faults = append(faults, bad...)
		maps.Copy(found, here)
		for name, d := range here {
			if d.Kind == "" { // two files of this directory define the device
				delete(found, name)
			}
		}
	}
	devices = slices.SortedFunc(maps.Values(found), func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(faults, func(a, b Fault) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Reason, b.Reason)) })
	return devices, slices.Compact(faults)
}

// readDirectory reads the specifications in one directory. If two files define the same device, found has the device
// with an empty Kind.
func readDirectory(dir string) (found map[string]Device, faults []Fault) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		faults = append(faults, Fault{dir, faultReason(err)})
	}
	found = map[string]Device{}
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		if ext := filepath.Ext(file); e.IsDir() || ext != ".json" && ext != ".yaml" {
			continue
		}
		devices, err := readFile(file)
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			faults = append(faults, Fault{file, faultReason(err)})
		}
		for _, d := range devices {
			if other, twice := found[d.Name]; twice {
				faults = append(faults, Fault{file, d.Name + " is also defined in " + other.File}, Fault{other.File, d.Name + " is also defined in " + file})
				d.Kind = ""
			}
			found[d.Name] = d
		}
	}
	return found, faults
}

// readFile reads one specification.
func readFile(file string) ([]Device, error) {
	at, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case !at.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	case at.Size() > maxSpecFile:
		return nil, fmt.Errorf("larger than %d bytes", maxSpecFile)
	}
	spec, err := cdi.ReadSpec(file, 0)
	if err != nil {
		return nil, err
	}
	devices := make([]Device, 0, len(spec.Devices))
	for i := range spec.Devices {
		d := &spec.Devices[i]
		devices = append(devices, Device{
			Name: spec.Kind + "=" + d.Name, Kind: spec.Kind, File: file,
			Nodes: deviceNodes(d.ContainerEdits.DeviceNodes), Env: slices.Clone(d.ContainerEdits.Env),
		})
	}
	return devices, nil
}

// deviceNodes converts the device nodes of a specification. If the specification has no numbers for a node, the result
// has the type and numbers of the host's device node.
func deviceNodes(in []*specs.DeviceNode) (out []lifecycle.Device) {
	for _, n := range in {
		d := lifecycle.Device{Path: n.Path, Host: cmp.Or(n.HostPath, n.Path), Type: n.Type, Major: n.Major, Minor: n.Minor}
		if d.Major == 0 {
			d.Type, d.Major, d.Minor = hostDeviceNumbers(d)
		}
		out = append(out, d)
	}
	return out
}

// hostDeviceNumbers returns the type and numbers of the host's device node for d. If the host has no such node, or its
// node has another type than d, hostDeviceNumbers returns the type and numbers in d.
func hostDeviceNumbers(d lifecycle.Device) (kind string, major, minor int64) {
	var st unix.Stat_t
	if unix.Stat(d.Host, &st) != nil {
		return d.Type, d.Major, d.Minor
	}
	is := map[uint32]string{unix.S_IFCHR: "c", unix.S_IFBLK: "b"}[st.Mode&unix.S_IFMT]
	if is == "" || d.Type != "" && d.Type != is && (d.Type != "u" || is != "c") {
		return d.Type, d.Major, d.Minor
	}
	return is, int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
}

// faultReason returns the text of an error on one line. It leaves the path of the file out, because a Fault has the
// path.
func faultReason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Op + ": " + p.Err.Error()
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	if _, after, ok := strings.Cut(text, "failed to unmarshal CDI Spec: "); ok {
		return "not a CDI specification: " + after
	}
	return text
}
