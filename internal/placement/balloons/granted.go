package balloons

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/class"
	"github.com/trimtab/trimtab/internal/topology"
)

// This file handles entries of preferCloseToDevices that begin with podresourceapi:. Such an entry has a pattern for
// names of resources. The entry means the devices of these resources that the kubelet granted to the containers of a
// balloon.

// resourcePattern returns the pattern after podresourceapi: in an entry of preferCloseToDevices, or in the
// path of a device; false if the text does not begin with podresourceapi:.
func resourcePattern(device string) (pattern string, ok bool) {
	return strings.CutPrefix(device, placement.PodResourcesPrefix)
}

// checkPatterns returns a problem for each invalid pattern of a type.
func checkPatterns(at string, t *TypeOptions) (wrong []class.Problem) {
	for n, device := range t.PreferCloseToDevices {
		pattern, is := resourcePattern(device)
		if _, err := path.Match(pattern, ""); is && err != nil {
			wrong = append(wrong, class.Problem{Path: fmt.Sprintf("%spreferCloseToDevices[%d]", at, n), Text: "is " + class.Quote(device) + ", a pattern with a [ without ]"})
		}
	}
	return wrong
}

// devicePatterns returns the entries with patterns in preferCloseToDevices of the given types. It returns them in the
// order of the types and of their entries, without duplicates.
func devicePatterns(types []*TypeOptions) (all []string) {
	for _, t := range types {
		for _, device := range t.PreferCloseToDevices {
			if _, is := resourcePattern(device); is && !slices.Contains(all, device) {
				all = append(all, device)
			}
		}
	}
	return all
}

// GrantedDeviceKeys returns the configuration keys of all entries of preferCloseToDevices with patterns.
func GrantedDeviceKeys(o PolicyOptions) (paths []string) {
	for i := range o.BalloonTypes {
		for n, device := range o.BalloonTypes[i].PreferCloseToDevices {
			if _, is := resourcePattern(device); is {
				paths = append(paths, fmt.Sprintf("balloonTypes[%d].preferCloseToDevices[%d]", i, n))
			}
		}
	}
	return paths
}

// grantedDevices returns the CPUs near those devices of a container that match patterns of type t. The text why is
// added to the reason for the container's balloon; it is "" if the type has no patterns.
func (p *Policy) grantedDevices(t *TypeOptions, s placement.Subject) (all []placement.DeviceCPUs, why string) {
	for _, pattern := range devicePatterns(p.partTypes[t.Name]) {
		var cpus topology.Set
		var names []string
		for _, d := range p.matchingDevices(pattern, s) {
			cpus = cpus.Union(d.NearCPUs)
			if name := intent.Printable(d.Name); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		if cpus.Empty() {
			why += "; the container has no device of " + intent.Printable(pattern) + " whose nearest CPUs are known"
			continue
		}
		all = append(all, placement.DeviceCPUs{Pattern: pattern, CPUs: cpus})
		why += "; the balloon prefers CPUs " + p.Machine.Format(cpus) + ", near " + strings.Join(names, ", ")
	}
	return all, why
}

// matchingDevices returns the devices of a container that match a pattern and whose nearest CPUs are known.
// Normally the kubelet reports the NUMA nodes or PCI addresses of the matching resources. If the container has a
// matching resource, but the kubelet reports neither, the result has the container's CDI devices and device nodes.
func (p *Policy) matchingDevices(entry string, s placement.Subject) (all []placement.LocatedDevice) {
	pattern, _ := resourcePattern(entry)
	matches := func(resource string) bool { is, err := path.Match(pattern, resource); return is && err == nil }
	granted := slices.ContainsFunc(s.Devices, func(g lifecycle.DeviceGrant) bool {
		for resource := range g.IDs {
			if matches(resource) {
				return true
			}
		}
		return false
	})
	var others []placement.LocatedDevice
	for _, d := range placement.LocatedDevices(p.Machine, s.Devices) {
		resource, reported := resourcePattern(d.Path)
		switch {
		case reported && matches(resource):
			all = append(all, d)
		case !reported && granted:
			others = append(others, d)
		}
	}
	if len(all) == 0 {
		return others
	}
	return all
}

// devicesOf returns the requests of the balloon's containers that have devices which type t prefers. Each request is
// divided by the number of the balloon's parts. The requests for the devices that the type prefers most come first.
func devicesOf(t *TypeOptions, need *placement.Need, parts int) (all []placement.DeviceNeed) {
	for _, pattern := range devicePatterns([]*TypeOptions{t}) {
		for _, d := range need.Devices {
			if d.Pattern == pattern {
				d.MilliCPUs = (d.MilliCPUs + int64(parts) - 1) / int64(parts)
				all = append(all, d)
			}
		}
	}
	return all
}

// pick chooses n CPUs from candidates for a part of a balloon. The balloon already has the CPUs in ownCPUs. For the
// containers with devices, pick first chooses as many CPUs near these devices as the containers request. Then it
// chooses other CPUs. If possible, it does not choose CPUs of the sets in avoided.
func (p *Policy) pick(s *balloonPart, n int, candidates, ownCPUs topology.Set, avoided []topology.Set, prefers Preference) (got topology.Set) {
	h := p.hints[s.balloonType.Name].withAvoided(avoided)
	more := func(n int, first *placement.DeviceNeed) {
		near := h.withDevices(s.devices, first)
		got = got.Union(p.Pick.Pick(n, near.apply(candidates.Minus(got), n), ownCPUs.Union(got), prefers))
	}
	for i := range s.devices {
		d := &s.devices[i]
		if lacks := min(d.Size()-ownCPUs.Union(got).And(d.CPUs).Len(), n-got.Len()); lacks > 0 {
			more(lacks, d)
		}
	}
	if left := n - got.Len(); left > 0 {
		more(left, nil)
	}
	return got
}

// withDevices returns a copy of the hints with more preferred CPUs. A hint with a pattern gets the CPUs near all
// devices that match the pattern. If the parameter only is not nil, the hint with the pattern of only gets just the
// CPUs of only.
func (h hints) withDevices(all []placement.DeviceNeed, only *placement.DeviceNeed) hints {
	if len(all) == 0 {
		return h
	}
	h.preferredCPUs = slices.Clone(h.preferredCPUs)
	for i := range h.preferredCPUs {
		for k := range all {
			if d := &all[k]; d.Pattern == h.preferredCPUs[i].pattern && (only == nil || only.Pattern != d.Pattern || only == d) {
				h.preferredCPUs[i].cpus = h.preferredCPUs[i].cpus.Union(d.CPUs)
			}
		}
	}
	return h
}
