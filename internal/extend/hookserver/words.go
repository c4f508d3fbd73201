package hookserver

import (
	"math"
	"strconv"
	"strings"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// restartCountKey is the kubelet's annotation with the restart count of a container. The CRI calls this count attempt.
const restartCountKey = "io.kubernetes.container.restartCount"

// podMetadata returns the metadata of a pod.
func podMetadata(p *lifecycle.Pod) *hooks.PodSandboxMetadata {
	return &hooks.PodSandboxMetadata{Name: p.Name, Uid: p.UID, Namespace: p.Namespace}
}

// podRequest converts a pod to a message. The message must not be modified, because it shares the pod's maps.
func podRequest(p *lifecycle.Pod) *hooks.PodSandboxHookRequest {
	return &hooks.PodSandboxHookRequest{
		PodMeta: podMetadata(p), RuntimeHandler: p.RuntimeHandler, Labels: p.Labels, Annotations: p.Annotations,
		CgroupParent: p.CgroupParent, Overhead: resourcesMessage(p.Overhead), Resources: resourcesMessage(p.Resources),
	}
}

// containerRequest converts a container to a message. The message must not be modified, because it shares the
// container's maps. If creating is true, the container does not exist yet, and the message has no container id.
func containerRequest(p *lifecycle.Pod, c *lifecycle.Container, creating bool) *hooks.ContainerResourceHookRequest {
	req := &hooks.ContainerResourceHookRequest{
		PodMeta: podMetadata(p), ContainerMeta: &hooks.ContainerMetadata{Name: c.Name, Id: c.ID, Attempt: restartCountOf(c)},
		ContainerAnnotations: c.Annotations, ContainerResources: resourcesMessage(&c.Resources),
		PodResources: resourcesMessage(p.Resources), PodAnnotations: p.Annotations, PodLabels: p.Labels,
		PodCgroupParent: p.CgroupParent, ContainerEnvs: envMap(c.Env),
	}
	if creating {
		req.ContainerMeta.Id = ""
	}
	req.ContainerResources.OomScoreAdj = c.OOMScoreAdj.V
	return req
}

// restartCountOf returns the restart count in a container's annotations; 0 if it is missing or not a number.
func restartCountOf(c *lifecycle.Container) uint32 {
	n, err := strconv.ParseUint(c.Annotations[restartCountKey], 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// envMap converts a list of NAME=value texts to a map. If a name occurs twice, the last value counts.
func envMap(list []string) map[string]string {
	out := make(map[string]string, len(list))
	for _, e := range list {
		name, value, _ := strings.Cut(e, "=")
		out[name] = value
	}
	return out
}

// resourcesMessage converts resources to a message. It returns nil for nil.
func resourcesMessage(r *lifecycle.Resources) *hooks.LinuxContainerResources {
	if r == nil {
		return nil
	}
	out := &hooks.LinuxContainerResources{
		CpuPeriod: clampToInt64(r.CPU.Period.V), CpuQuota: r.CPU.Quota.V, CpuShares: clampToInt64(r.CPU.Shares.V),
		MemoryLimitInBytes: r.Memory.Limit.V, MemorySwapLimitInBytes: r.Memory.Swap.V,
		CpusetCpus: r.CPU.CPUs, CpusetMems: r.CPU.Mems, Unified: r.Unified,
	}
	for _, h := range r.Hugepages {
		out.HugepageLimits = append(out.HugepageLimits, &hooks.HugepageLimit{PageSize: h.Size, Limit: h.Limit})
	}
	return out
}

// clampToInt64 converts v; a value above the greatest int64 becomes the greatest int64.
func clampToInt64(v uint64) int64 { return int64(min(v, math.MaxInt64)) }
