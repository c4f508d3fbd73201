package conductor

import (
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// compact moves what is kept of an event's pods and containers out of the
// message it came in. A runtime's whole list is megabytes, and a few kept words
// in each page of it would hold all of them.
func compact(ev *lifecycle.Event) {
	for i, p := range ev.Pods {
		if p != nil {
			ev.Pods[i] = compactPod(p)
		}
	}
	for _, c := range ev.Containers {
		if c != nil {
			together(&c.ID, &c.PodID, &c.Name, &c.CgroupsPath, &c.Resources.CPU.CPUs, &c.Resources.CPU.Mems)
		}
	}
}

func compactPod(p *lifecycle.Pod) *lifecycle.Pod {
	n := *p
	n.Namespaces = nil // nobody decides by them
	keep := []*string{&n.ID, &n.Name, &n.UID, &n.Namespace, &n.RuntimeHandler, &n.CgroupParent, &n.CgroupsPath}
	labels, annotations := pairs(p.Labels), pairs(p.Annotations)
	for _, of := range [][]string{labels, annotations} {
		for i := range of {
			keep = append(keep, &of[i])
		}
	}
	together(keep...)
	n.Labels, n.Annotations = unpaired(labels), unpaired(annotations)
	for _, r := range []**lifecycle.Resources{&n.Overhead, &n.Resources, &n.Sandbox} {
		if *r != nil {
			own := **r
			*r = &own
		}
	}
	return &n
}

// together gives texts one piece of memory.
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

// pairs lists a map's keys, each before its value.
func pairs(m map[string]string) []string {
	out := make([]string, 0, 2*len(m))
	for k, v := range m {
		out = append(out, k, v)
	}
	return out
}

// unpaired is the map of a list of pairs; nil where there is none.
func unpaired(list []string) map[string]string {
	if len(list) == 0 {
		return nil
	}
	m := make(map[string]string, len(list)/2)
	for i := 0; i < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}
