package lifecycle

import (
	"slices"
	"strings"
)

// Compact returns a copy of the pod whose strings are in one new allocation, so that the garbage collector can free the
// runtime's message. The copy has no Namespaces: HostNetwork and HostIPC have what the agent needs from them.
func (p *Pod) Compact() *Pod {
	n := *p
	if len(p.Namespaces) > 0 {
		n.HostNetwork, n.HostIPC = p.sharesHost("network"), p.sharesHost("ipc")
	}
	n.Namespaces = nil
	keep := []*string{&n.ID, &n.Name, &n.UID, &n.Namespace, &n.RuntimeHandler, &n.CgroupParent, &n.CgroupsPath}
	labels, annotations := keyValuePairs(p.Labels), keyValuePairs(p.Annotations)
	keep = appendAddresses(appendAddresses(keep, labels), annotations)
	copyTexts(keep...)
	n.Labels, n.Annotations = mapOfPairs(labels, p.Labels), mapOfPairs(annotations, p.Annotations)
	for _, r := range []**Resources{&n.Overhead, &n.Resources, &n.Sandbox} {
		if *r != nil {
			own := **r
			*r = &own
		}
	}
	return &n
}

// sharesHost reports whether the pod uses the host's namespace of a kind. Namespaces has only namespaces
// that differ from the host's.
func (p *Pod) sharesHost(kind string) bool {
	return !slices.ContainsFunc(p.Namespaces, func(n Namespace) bool { return n.Type == kind })
}

// CompactIDs copies the container's ids, name, cgroup path, and lists of CPUs and memory nodes into one new allocation.
// The agent stores these strings for long, and the originals keep the whole message of the runtime in memory.
func (c *Container) CompactIDs() {
	copyTexts(&c.ID, &c.PodID, &c.Name, &c.CgroupsPath, &c.Resources.CPU.CPUs, &c.Resources.CPU.Mems)
}

// Compact copies the container's ids, name, cgroup path, lists of CPUs and memory nodes, labels, annotations
// and environment into one new allocation, so that the garbage collector can free the runtime's message.
func (c *Container) Compact() {
	labels, annotations := keyValuePairs(c.Labels), keyValuePairs(c.Annotations)
	c.Env = append([]string(nil), c.Env...)
	keep := []*string{&c.ID, &c.PodID, &c.Name, &c.CgroupsPath, &c.Resources.CPU.CPUs, &c.Resources.CPU.Mems}
	keep = appendAddresses(appendAddresses(appendAddresses(keep, labels), annotations), c.Env)
	copyTexts(keep...)
	c.Labels, c.Annotations = mapOfPairs(labels, c.Labels), mapOfPairs(annotations, c.Annotations)
}

// appendAddresses appends the addresses of the elements of texts to a list.
func appendAddresses(list []*string, texts []string) []*string {
	for i := range texts {
		list = append(list, &texts[i])
	}
	return list
}

// copyTexts copies strings into one allocation and sets the variables to the copies.
func copyTexts(texts ...*string) {
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

// maxPairs is the largest number of entries of a map that Compact copies. Pods usually have dozens of labels and
// annotations. A user can write tens of thousands, and to copy these takes longer than all other work on an event of
// the pod.
const maxPairs = 1024

// keyValuePairs returns the keys and values of a map, each key followed by its value. It returns nil if
// the map has more than maxPairs entries.
func keyValuePairs(m map[string]string) []string {
	if len(m) > maxPairs {
		return nil
	}
	out := make([]string, 0, 2*len(m))
	for k, v := range m {
		out = append(out, k, v)
	}
	return out
}

// mapOfPairs makes a map from a list that keyValuePairs returned for the original map. If the original map has more
// than maxPairs entries, mapOfPairs returns the original map.
func mapOfPairs(list []string, original map[string]string) map[string]string {
	switch {
	case len(original) > maxPairs:
		return original
	case len(list) == 0:
		return nil
	}
	m := make(map[string]string, len(list)/2)
	for i := 0; i < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}
