package runtimes

import "slices"

// The annotations in which CRI-O stores the parent cgroup of a pod, and the resources and overhead that the kubelet
// requested for the pod. The first name of each list was recorded from CRI-O 1.36.3. Up to 1.35 the annotations for
// resources and overhead have the second name (pkg/annotations of CRI-O).
var (
	crioCgroupParent = []string{"io.kubernetes.cri-o.CgroupParent"}
	crioResources    = []string{"pod-linux-resources.crio.io", "io.kubernetes.cri-o.PodLinuxResources"}
	crioOverhead     = []string{"pod-linux-overhead.crio.io", "io.kubernetes.cri-o.PodLinuxOverhead"}
)

// SandboxAnnotations has the facts about a pod from CRI-O's annotations in the OCI spec of the pod's sandbox. A field
// is empty if its annotation is missing.
type SandboxAnnotations struct {
	CgroupParent string
	// Resources and Overhead are JSON of the CRI's LinuxContainerResources.
	Resources, Overhead string
}

// ReadSandboxAnnotations reads the annotations in the OCI spec of a sandbox. CRI-O adds the pod's own annotations and
// labels to these annotations. The maps podOwned are the pod's own annotations and labels. ReadSandboxAnnotations
// ignores annotations with a key of these maps, because the author of the pod can choose their values.
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
