package runtimes

import "slices"

// The annotations in which CRI-O stores what containerd reports under "info" in a pod's verbose status: the parent
// cgroup, and the requested resources as JSON of the CRI's LinuxContainerResources. The first names were recorded from
// CRI-O 1.36.3. Up to 1.35 the two annotations for resources have the second names (pkg/annotations of CRI-O).
var (
	crioCgroupParent = []string{"io.kubernetes.cri-o.CgroupParent"}
	crioResources    = []string{"pod-linux-resources.crio.io", "io.kubernetes.cri-o.PodLinuxResources"}
	crioOverhead     = []string{"pod-linux-overhead.crio.io", "io.kubernetes.cri-o.PodLinuxOverhead"}
)

// SandboxAnnotations has what the annotations in the OCI spec of a sandbox say about the pod. A field is empty if no
// annotation says it.
type SandboxAnnotations struct {
	CgroupParent string
	// Resources and Overhead are JSON of the CRI's LinuxContainerResources.
	Resources, Overhead string
}

// ReadSandboxAnnotations reads the annotations in the OCI spec of a sandbox. CRI-O adds the pod's own annotations and
// labels to these annotations. podOwned are the pod's own annotations and labels. ReadSandboxAnnotations ignores their
// keys, because the author of the pod could write them.
func ReadSandboxAnnotations(annotations map[string]string, podOwned ...map[string]string) SandboxAnnotations {
	isPodOwned := func(k string) bool {
		return slices.ContainsFunc(podOwned, func(m map[string]string) bool { _, has := m[k]; return has })
	}
	first := func(keys []string) string {
		for _, k := range keys {
			if v := annotations[k]; v != "" && v != "null" && !isPodOwned(k) {
				return v
			}
		}
		return ""
	}
	return SandboxAnnotations{first(crioCgroupParent), first(crioResources), first(crioOverhead)}
}
