package topologyaware

import (
	"fmt"
	"math"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// hints are the topology hints of a container's devices: the CPUs near each device.
type hints struct {
	tree     tree
	nearCPUs []topology.Set // the CPUs near each device; devices with the same path have one entry together
	names    []string       // the names of the devices in nearCPUs
}

// levelPenalty is a factor below 1 for the nearness of a part that is larger than needed. The factor counts once for
// each level by which the part is too large (nri-plugins 0.14, topology-aware, OverfitPenalty).
const levelPenalty = 0.9

// hintsOf returns the hints of a container's devices. It leaves out the hints that the pod's annotations exclude.
func (p *Policy) hintsOf(s placement.Subject) hints {
	h := hints{tree: p.tree}
	at := map[string]int{}
	for _, d := range placement.LocatedDevices(p.machine, s.Devices) {
		if !isHintUsed(s, d.Path) {
			continue
		}
		if i, known := at[d.Path]; known {
			h.nearCPUs[i] = h.nearCPUs[i].Union(d.NearCPUs)
			continue
		}
		at[d.Path] = len(h.nearCPUs)
		h.nearCPUs, h.names = append(h.nearCPUs, d.NearCPUs), append(h.names, intent.Printable(d.Name))
	}
	return h
}

// isHintUsed reports whether the pod's annotations allow the hint of the device at path. The annotations can exclude
// kinds of hints. They can also have a deny list: if a device is on the deny list, its hint is used only if the device
// is also on the allow list.
func isHintUsed(s placement.Subject, path string) bool {
	if kinds := s.Intent.HintKinds.V.Of(s.Name); kinds.IsSet() {
		ofKubelet := strings.HasPrefix(path, placement.PodResourcesPrefix)
		if ofKubelet && !kinds.V.PodResources || !ofKubelet && !kinds.V.Devices {
			return false
		}
	}
	return !s.Intent.HintDeny.V.Of(s.Name).V.Contains(path) || s.Intent.HintAllow.V.Of(s.Name).V.Contains(path)
}

// nearness returns how near part i is to a device, from 0 to 1. The parameter nearCPUs has the CPUs near the device.
func (h *hints) nearness(nearCPUs topology.Set, i int) float64 {
	part := h.tree[i].cpus
	switch both := part.And(nearCPUs); {
	case both.Empty():
		return 0
	case nearCPUs.Contains(part):
		return 1
	case part.Contains(nearCPUs):
		return math.Pow(levelPenalty, float64(h.tree[h.tree.smallestAround(nearCPUs)].depth-h.tree[i].depth))
	default:
		return float64(both.Len()) / float64(nearCPUs.Len())
	}
}

// nearnessProduct returns the product of the nearness of part i to each device. The product is 0 if there is a device
// to which the part is not near.
func (h *hints) nearnessProduct(i int) float64 {
	p := 1.0
	for _, near := range h.nearCPUs {
		p *= h.nearness(near, i)
	}
	return p
}

// nearnessSum returns the sum of the nearness of part i to each device.
func (h *hints) nearnessSum(i int) (s float64) {
	for _, near := range h.nearCPUs {
		s += h.nearness(near, i)
	}
	return s
}

// maxNamedDevices is the largest number of devices that a reason lists by name.
const maxNamedDevices = 3

// deviceNames returns the names of the devices for a reason, at most maxNamedDevices of them.
func (h *hints) deviceNames() string {
	names := strings.Join(h.names[:min(maxNamedDevices, len(h.names))], ", ")
	if more := len(h.names) - maxNamedDevices; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return names
}

// hintCriteria returns the criteria that compare parts by their nearness to a container's devices. It returns
// no criteria if no device has a hint. The function part returns the index of a candidate's part.
func hintCriteria[T any](h *hints, part func(T) int) []criterion[T] {
	if len(h.nearCPUs) == 0 {
		return nil
	}
	return []criterion[T]{
		{"this part is nearer to all devices of the container (" + h.deviceNames() + ")", func(c T) float64 { return h.nearnessProduct(part(c)) }},
		{"this part is nearer to most devices of the container (" + h.deviceNames() + ")", func(c T) float64 { return h.nearnessSum(part(c)) }},
	}
}

// preference returns a preference for the CPUs near any of the devices; nil if no CPUs are near a device.
func (h *hints) preference() []choose.Preference {
	var cpus topology.Set
	for _, near := range h.nearCPUs {
		cpus = cpus.Union(near)
	}
	if cpus.Empty() {
		return nil
	}
	return []choose.Preference{{Name: "its devices", CPUs: cpus, Partly: true}}
}
