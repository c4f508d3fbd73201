package intent

import (
	"fmt"
	"slices"
	"strings"
)

// allocatedDevices is the JSON of the annotation device-allocated. The agent reports kinds of devices other than gpu
// and rdma as not supported, because no hook gives them to containers.
type allocatedDevices struct {
	GPU []struct {
		Minor     *int                `json:"minor"`
		ID        string              `json:"id"`
		Resources map[string]quantity `json:"resources"`
	} `json:"gpu"`
	RDMA []struct {
		ID        string `json:"id"`
		Extension struct {
			VFs []struct {
				BusID string `json:"busID"`
			} `json:"vfs"`
		} `json:"extension"`
	} `json:"rdma"`
}

// readDevices reads the annotation KoordDevices: the GPUs and RDMA cards that a scheduler allocated to the pod.
func readDevices(t *podTexts, out *Pod) {
	var devices allocatedDevices
	if !t.decode(KoordDevices, &devices, out) {
		return
	}
	for _, kind := range t.members(KoordDevices) {
		if kind != "gpu" && kind != "rdma" {
			out.reportUnserved(KoordDevices, kind, "device kind %q is not supported: no hook gives such devices to containers", printable(kind))
		}
	}
	if len(devices.GPU) > 0 {
		readGPU(t, &devices, out)
	}
	if len(devices.RDMA) > 0 {
		readRDMA(t, &devices, out)
	}
}

// readGPU reads the allocated GPUs, and the share of a GPU if the library HAMi-core enforces it.
func readGPU(t *podTexts, devices *allocatedDevices, out *Pod) {
	var gpu GPU
	for _, d := range devices.GPU {
		if d.Minor == nil || *d.Minor < 0 || *d.Minor > maxGPUMinor || slices.Contains(gpu.Minors, *d.Minor) {
			out.reportMalformed(KoordDevices, t.annotation(KoordDevices), "gpu: each entry needs a minor number from 0 to %d that no other entry has", maxGPUMinor)
			return
		}
		gpu.Minors = append(gpu.Minors, *d.Minor)
		gpu.UUIDs = append(gpu.UUIDs, gpuUUID(d.ID))
	}
	if !slices.ContainsFunc(gpu.UUIDs, func(id string) bool { return id != "" }) {
		gpu.UUIDs = nil
	}
	if t.label(KoordGPUIsolation) == "HAMi-core" {
		share, err := readShare(devices.GPU[0].Resources)
		if err != nil {
			out.reportMalformed(KoordDevices, t.annotation(KoordDevices), "gpu shared by HAMi-core: %v", err)
			return
		}
		gpu.Share = share
	}
	out.GPU = Sourced[GPU]{gpu, KoordDevices}
}

// gpuUUID returns the id if it is the UUID of a GPU or MIG device. It returns "" for other texts, because the runtime
// could read such a text as the names of several GPUs.
func gpuUUID(id string) string {
	rest, ok := strings.CutPrefix(id, "GPU-")
	if !ok {
		rest, ok = strings.CutPrefix(id, "MIG-")
	}
	if !ok || rest == "" || len(rest) > 64 || strings.Trim(rest, "0123456789abcdefABCDEF-") != "" {
		return ""
	}
	return id
}

// readRDMA reads the allocated PCI functions of RDMA cards. For a card with virtual functions, it reads only the
// virtual functions.
func readRDMA(t *podTexts, devices *allocatedDevices, out *Pod) {
	var addresses []string
	for _, d := range devices.RDMA {
		ids := []string{d.ID}
		if vfs := d.Extension.VFs; len(vfs) > 0 {
			ids = nil
			for _, vf := range vfs {
				ids = append(ids, vf.BusID)
			}
		}
		for _, id := range ids {
			address, err := pciAddress(id)
			if err != nil {
				out.reportMalformed(KoordDevices, t.annotation(KoordDevices), "rdma: %v", err)
				return
			}
			if slices.Contains(addresses, address) || len(addresses) > maxGPUMinor {
				out.reportMalformed(KoordDevices, t.annotation(KoordDevices), "rdma: a PCI function is listed twice, or the pod has more than %d functions", maxGPUMinor+1)
				return
			}
			addresses = append(addresses, address)
		}
	}
	out.RDMA = Sourced[[]string]{addresses, KoordDevices}
}

// IsPCIAddress reports whether a text is a PCI address in the kernel's form.
func IsPCIAddress(text string) bool {
	address, err := pciAddress(text)
	return err == nil && address == text
}

// pciAddress parses an address domain:bus:device.function, and returns the address in lower case, as the kernel writes
// it.
func pciAddress(text string) (string, error) {
	form := "hhhh:hh:hh.f"
	lower := strings.ToLower(text)
	ok := len(lower) == len(form)
	for i := 0; ok && i < len(form); i++ {
		switch form[i] {
		case 'h':
			ok = strings.IndexByte("0123456789abcdef", lower[i]) >= 0
		case 'f':
			ok = lower[i] >= '0' && lower[i] <= '7'
		default:
			ok = lower[i] == form[i]
		}
	}
	if !ok {
		return "", fmt.Errorf("%q is not a PCI address such as 0000:3b:00.0", printable(text))
	}
	return lower, nil
}
