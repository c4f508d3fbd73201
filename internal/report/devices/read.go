package devices

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Inventory has the GPUs and RDMA cards of a node.
type Inventory struct {
	GPUs   []GPU  // in order of minor number
	Driver string // the version of the NVIDIA driver; "" if unknown
	RDMA   []RDMA // in order of minor number
	// Missing has one text for each device that Read left out: the device and the reason.
	Missing []string
}

// PCI is the position of a device on the PCI bus.
type PCI struct {
	Address string // domain:bus:device.function
	Node    int    // the id of the NUMA node; 0 if the firmware names no NUMA node
	Root    string // the PCIe root, such as pci0000:3a
}

// GPU is an NVIDIA GPU that the NVIDIA driver reports.
type GPU struct {
	PCI

	UUID, Model string
	Minor       int // the number N of the device node /dev/nvidiaN
}

// RDMA is a physical function of an RDMA card.
type RDMA struct {
	PCI

	Name   string   // the kernel's name, such as mlx5_0
	Minor  int      // the number of the card: the number in its name, or the number of its verbs device
	Active bool     // all ports of the card are active
	VFs    []string // the PCI addresses of the virtual functions of this physical function, ascending
}

const (
	gpusDir      = "driver/nvidia/gpus"      // below /proc
	driverFile   = "module/nvidia/version"   // below /sys
	pciDir       = "bus/pci/devices"         // below /sys
	rdmaCardsDir = "class/infiniband"        // below /sys
	verbsDir     = "device/infiniband_verbs" // below a card
	nvidiaVendor = "0x10de"                  // PCI vendor
	displayClass = "0x03"                    // PCI class of GPUs
)

// Read reads the GPUs and RDMA cards of a node from /proc and /sys. It leaves out a device that disappears during the
// read, and a device without the data that a scheduler needs. Read lists these devices in Missing. It returns an error
// if it cannot read a directory.
func Read(proc, sys fs.FS) (Inventory, error) {
	var i Inventory
	if err := i.readGPUs(proc, sys); err != nil {
		return i, err
	}
	if err := i.readRDMACards(sys); err != nil {
		return i, err
	}
	return i, nil
}

// readGPUs reads the GPUs that the NVIDIA driver reports. It adds to Missing the GPUs on the PCI bus that the driver
// does not report. These GPUs have no driver, or a driver that does not work.
func (i *Inventory) readGPUs(proc, sys fs.FS) error {
	names, err := listDir(proc, gpusDir)
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, bus := range names {
		named[bus] = true
		g, why := readGPU(proc, sys, bus)
		if why != "" {
			i.leaveOut("GPU", bus, why)
			continue
		}
		i.GPUs = append(i.GPUs, g)
	}
	slices.SortFunc(i.GPUs, func(a, b GPU) int { return cmp.Compare(a.Minor, b.Minor) })
	if len(names) > 0 {
		i.Driver = readText(sys, driverFile)
	}
	all, err := listDir(sys, pciDir)
	if err != nil {
		return err
	}
	for _, bus := range all {
		at := path.Join(pciDir, bus)
		if !named[bus] && readText(sys, path.Join(at, "vendor")) == nvidiaVendor && strings.HasPrefix(readText(sys, path.Join(at, "class")), displayClass) {
			i.leaveOut("GPU", bus, "no driver reports this GPU")
		}
	}
	return nil
}

// readGPU reads the GPU with a PCI address. If the GPU must be left out, readGPU returns the reason why.
func readGPU(proc, sys fs.FS, bus string) (g GPU, why string) {
	information, err := fs.ReadFile(proc, path.Join(gpusDir, bus, "information"))
	if err != nil {
		return g, err.Error()
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(information)) {
		key, value, _ := strings.Cut(line, ":")
		fields[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	g.Model, g.UUID = fields["Model"], fields["GPU UUID"]
	if g.Minor, err = strconv.Atoi(fields["Device Minor"]); err != nil || g.Minor < 0 {
		return g, "its driver reports no minor number"
	}
	switch {
	case fields["GPU Excluded"] == "Yes":
		return g, "its driver excludes it"
	case g.UUID == "" || strings.Contains(g.UUID, "?"):
		return g, "its driver reports no UUID before the GPU is used: start nvidia-persistenced"
	}
	g.PCI, err = readPCI(sys, bus)
	if err != nil {
		return g, err.Error()
	}
	return g, ""
}

// readRDMACards reads the physical functions of RDMA cards. Each entry has the virtual functions of the physical
// function.
func (i *Inventory) readRDMACards(sys fs.FS) error {
	names, err := listDir(sys, rdmaCardsDir)
	if err != nil {
		return err
	}
	busByMinor := map[int]string{}
	for _, name := range names {
		at := path.Join(rdmaCardsDir, name)
		target, err := fs.ReadLink(sys, path.Join(at, "device"))
		if err != nil {
			continue // the card is a software device, such as rxe0, and is not on a PCI bus
		}
		bus := path.Base(target)
		pci := path.Join(pciDir, bus)
		if _, err := fs.Lstat(sys, pci); err != nil {
			continue
		}
		if _, err := fs.Lstat(sys, path.Join(pci, "physfn")); err == nil {
			continue
		}
		r := RDMA{Name: name, Minor: cardNumber(sys, name), Active: isActive(sys, at), VFs: virtualFunctions(sys, pci)}
		r.PCI, err = readPCI(sys, bus)
		switch {
		case err != nil:
			i.leaveOut("RDMA card", bus, err.Error())
		case r.Minor < 0:
			i.leaveOut("RDMA card", bus, "the kernel reports no number for the RDMA device "+name)
		case busByMinor[r.Minor] != "":
			i.leaveOut("RDMA card", bus, fmt.Sprintf("the RDMA card %s has the same number %d", busByMinor[r.Minor], r.Minor))
		default:
			busByMinor[r.Minor] = bus
			i.RDMA = append(i.RDMA, r)
		}
	}
	slices.SortFunc(i.RDMA, func(a, b RDMA) int { return cmp.Compare(a.Minor, b.Minor) })
	return nil
}

// numberedName matches names of cards from which koordlet reads the card's number.
var numberedName = regexp.MustCompile(`^mlx\d+_(\d+)$`)

// cardNumber returns the number of an RDMA card. This is the number in the card's name, as in koordlet. If the name has
// no number, it is the number of the card's verbs device. cardNumber returns -1 if the card has neither number.
func cardNumber(sys fs.FS, name string) int {
	digits := ""
	if m := numberedName.FindStringSubmatch(name); m != nil {
		digits = m[1]
	} else if verbs, err := listDir(sys, path.Join(rdmaCardsDir, name, verbsDir)); err == nil && len(verbs) > 0 {
		digits = strings.TrimPrefix(verbs[0], "uverbs")
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}

// isActive reports whether a card has ports, and all ports of the card are active.
func isActive(sys fs.FS, card string) bool {
	ports, err := listDir(sys, path.Join(card, "ports"))
	if err != nil || len(ports) == 0 {
		return false
	}
	for _, port := range ports {
		if !strings.HasSuffix(readText(sys, path.Join(card, "ports", port, "state")), "ACTIVE") {
			return false
		}
	}
	return true
}

// virtualFunctions returns the PCI addresses of the virtual functions of a physical function.
func virtualFunctions(sys fs.FS, pci string) (out []string) {
	links, err := fs.Glob(sys, path.Join(pci, "virtfn*"))
	if err != nil {
		return nil // cannot happen, because the pattern is valid
	}
	for _, link := range links {
		if target, err := fs.ReadLink(sys, link); err == nil {
			out = append(out, path.Base(target))
		}
	}
	slices.Sort(out)
	return out
}

// readPCI reads the NUMA node and the PCIe root of the device with a PCI address.
func readPCI(sys fs.FS, bus string) (PCI, error) {
	p := PCI{Address: bus}
	at := path.Join(pciDir, bus)
	node, err := strconv.Atoi(readText(sys, path.Join(at, "numa_node")))
	if err != nil {
		return p, errors.New("the kernel reports no NUMA node for the device, not even -1")
	}
	p.Node = max(0, node)
	target, err := fs.ReadLink(sys, at)
	if err != nil {
		return p, err
	}
	for element := range strings.SplitSeq(target, "/") {
		if strings.HasPrefix(element, "pci") {
			p.Root = element
			return p, nil
		}
	}
	return p, fmt.Errorf("the path %s of the device names no PCIe root", target)
}

// leaveOut adds a device to Missing. The kind is "GPU" or "RDMA card".
func (i *Inventory) leaveOut(kind, bus, why string) {
	i.Missing = append(i.Missing, fmt.Sprintf("%s %s: %s", kind, bus, why))
}

// listDir returns the sorted names of a directory's entries. It returns no names and no error if the directory does not
// exist.
func listDir(fsys fs.FS, dir string) (out []string, err error) {
	entries, err := fs.ReadDir(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, err
}

// readText returns the text of a file without space at both ends, or "" if it cannot read the file.
func readText(fsys fs.FS, name string) string {
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
