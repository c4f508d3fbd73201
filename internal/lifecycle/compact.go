package lifecycle

import "strings"

// Compact returns a copy of the pod that holds nothing of the message it came in,
// and has its texts in one piece of memory. It leaves out namespaces, which no
// decision needs.
func (p *Pod) Compact() *Pod {
	n := *p
	n.Namespaces = nil
	keep := []*string{&n.ID, &n.Name, &n.UID, &n.Namespace, &n.RuntimeHandler, &n.CgroupParent, &n.CgroupsPath}
	labels, annotations := pairs(p.Labels), pairs(p.Annotations)
	keep = addresses(addresses(keep, labels), annotations)
	together(keep...)
	n.Labels, n.Annotations = unpaired(labels, p.Labels), unpaired(annotations, p.Annotations)
	for _, r := range []**Resources{&n.Overhead, &n.Resources, &n.Sandbox} {
		if *r != nil {
			own := **r
			*r = &own
		}
	}
	return &n
}

// Together moves the texts that identify and place containers into one piece of
// memory, apart from the message they came in.
func (c *Container) Together() {
	together(&c.ID, &c.PodID, &c.Name, &c.CgroupsPath, &c.Resources.CPU.CPUs, &c.Resources.CPU.Mems)
}

// Compact is Together for labels, annotations and environment as well. There are
// dozens of them, and hundreds of containers.
func (c *Container) Compact() {
	labels, annotations := pairs(c.Labels), pairs(c.Annotations)
	c.Env = append([]string(nil), c.Env...)
	keep := []*string{&c.ID, &c.PodID, &c.Name, &c.CgroupsPath, &c.Resources.CPU.CPUs, &c.Resources.CPU.Mems}
	keep = addresses(addresses(addresses(keep, labels), annotations), c.Env)
	together(keep...)
	c.Labels, c.Annotations = unpaired(labels, c.Labels), unpaired(annotations, c.Annotations)
}

func addresses(to []*string, of []string) []*string {
	for i := range of {
		to = append(to, &of[i])
	}
	return to
}

// together moves texts into one piece of memory.
func together(texts ...*string) {
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

// maxPairs is how many entries of a map are moved. Pods have dozens. The author of
// one can write tens of thousands, and to make maps of these again takes longer
// than all else; they stay in the map they came in.
const maxPairs = 1024

// pairs lists a map's keys, each before its value; nil of a map that is not moved.
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

// unpaired is the map of a list of pairs; nil if there is none. It returns a map
// that was not moved as it is.
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
