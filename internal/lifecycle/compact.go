package lifecycle

import (
	"slices"
	"strings"
)

// Compact returns a copy of the pod that keeps no memory of the runtime's message alive: its
// strings are copied into one allocation. Of its namespaces the copy keeps only whether they are
// the host's.
func (p *Pod) Compact() *Pod {
	n := *p
	if len(p.Namespaces) > 0 {
		n.HostNetwork, n.HostIPC = p.shares("network"), p.shares("ipc")
	}
	n.Namespaces = nil
	keep := []*string{&n.ID, &n.Name, &n.UID, &n.Namespace, &n.RuntimeHandler, &n.CgroupParent, &n.CgroupsPath}
	labels, annotations := pairs(p.Labels), pairs(p.Annotations)
	keep = addresses(addresses(keep, labels), annotations)
	moveTexts(keep...)
	n.Labels, n.Annotations = unpaired(labels, p.Labels), unpaired(annotations, p.Annotations)
	for _, r := range []**Resources{&n.Overhead, &n.Resources, &n.Sandbox} {
		if *r != nil {
			own := **r
			*r = &own
		}
	}
	return &n
}

// shares reports whether a pod has no namespace of a kind, and so has the host's.
func (p *Pod) shares(kind string) bool {
	return !slices.ContainsFunc(p.Namespaces, func(n Namespace) bool { return n.Type == kind })
}

// CompactIDs copies the strings that identify and place the container into one allocation, so
// that they do not keep the runtime's message in memory.
func (c *Container) CompactIDs() {
	moveTexts(&c.ID, &c.PodID, &c.Name, &c.CgroupsPath, &c.Resources.CPU.CPUs, &c.Resources.CPU.Mems)
}

// Compact does what CompactIDs does, for labels, annotations and environment as well. A
// container has dozens of them.
func (c *Container) Compact() {
	labels, annotations := pairs(c.Labels), pairs(c.Annotations)
	c.Env = append([]string(nil), c.Env...)
	keep := []*string{&c.ID, &c.PodID, &c.Name, &c.CgroupsPath, &c.Resources.CPU.CPUs, &c.Resources.CPU.Mems}
	keep = addresses(addresses(addresses(keep, labels), annotations), c.Env)
	moveTexts(keep...)
	c.Labels, c.Annotations = unpaired(labels, c.Labels), unpaired(annotations, c.Annotations)
}

func addresses(to []*string, of []string) []*string {
	for i := range of {
		to = append(to, &of[i])
	}
	return to
}

// moveTexts copies strings into one allocation and points the variables at the copy.
func moveTexts(texts ...*string) {
	var b strings.Builder
	size := 0
	for _, t := range texts {
		size += len(*t)
	}
	b.Grow(size)
	for _, t := range texts {
		b.WriteString(*t)
	}
	all := b.String()
	for _, t := range texts {
		*t, all = all[:len(*t)], all[len(*t):]
	}
}

// maxPairs limits how many entries of a map are copied. Pods have dozens of labels and
// annotations. An author can write tens of thousands, and copying those would take longer than
// the rest of the event. A larger map stays as it is.
const maxPairs = 1024

// pairs lists a map's keys, each before its value. It returns nil for a map that is too large
// to copy.
func pairs(m map[string]string) []string {
	if len(m) > maxPairs {
		return nil
	}
	out := make([]string, 0, 2*len(m))
	for k, v := range m {
		out = append(out, k, v)
	}
	return out
}

// unpaired makes a map from a list of pairs, or returns the original map if pairs did not list
// it.
func unpaired(list []string, was map[string]string) map[string]string {
	switch {
	case len(was) > maxPairs:
		return was
	case len(list) == 0:
		return nil
	}
	m := make(map[string]string, len(list)/2)
	for i := 0; i < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}
