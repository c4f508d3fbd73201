package runtimes

import "slices"

// The annotations in which CRI-O has what containerd puts under "info" of a pod's verbose status: the cgroup, and
// the requested resources as JSON of the CRI's LinuxContainerResources. Recorded from 1.36.3. Up to 1.35 the two
// annotations for resources have other names (pkg/annotations of CRI-O).
var (
	crioCgroupParent = []string{"io.kubernetes.cri-o.CgroupParent"}
	crioResources    = []string{"pod-linux-resources.crio.io", "io.kubernetes.cri-o.PodLinuxResources"}
	crioOverhead     = []string{"pod-linux-overhead.crio.io", "io.kubernetes.cri-o.PodLinuxOverhead"}
)

// Annotated is what the annotations in a sandbox's OCI spec say about the pod; empty if they say nothing.
type Annotated struct {
	CgroupParent string
	// Resources and Overhead are JSON of LinuxContainerResources.
	Resources, Overhead string
}

// AnnotatedOf reads the annotations of a sandbox's OCI spec. CRI-O adds a pod's own annotations and labels to them.
// own has these, and AnnotatedOf ignores their keys, because a pod's author could write them.
func AnnotatedOf(annotations map[string]string, own ...map[string]string) Annotated {
	theirs := func(k string) bool {
		return slices.ContainsFunc(own, func(m map[string]string) bool { _, has := m[k]; return has })
	}
	first := func(keys []string) string {
		for _, k := range keys {
			if v := annotations[k]; v != "" && v != "null" && !theirs(k) {
				return v
			}
		}
		return ""
	}
	return Annotated{first(crioCgroupParent), first(crioResources), first(crioOverhead)}
}
