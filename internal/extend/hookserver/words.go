package hookserver

import (
	"math"
	"strconv"
	"strings"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// restarts is the kubelet's annotation with the number of a container's attempt, which
// is also in the container's CRI metadata.
const restarts = "io.kubernetes.container.restartCount"

// metaOf returns the metadata of a pod.
func metaOf(p *lifecycle.Pod) *hooks.PodSandboxMetadata {
	return &hooks.PodSandboxMetadata{Name: p.Name, Uid: p.UID, Namespace: p.Namespace}
}

// podOut converts a pod to a message. It shares the pod's maps, which nobody modifies.
func podOut(p *lifecycle.Pod) *hooks.PodSandboxHookRequest {
	return &hooks.PodSandboxHookRequest{
		PodMeta: metaOf(p), RuntimeHandler: p.RuntimeHandler, Labels: p.Labels, Annotations: p.Annotations,
		CgroupParent: p.CgroupParent, Overhead: resourcesOut(p.Overhead), Resources: resourcesOut(p.Resources),
	}
}

// containerOut converts a container to a message, and shares its maps. creating means that the container has no id
// yet.
func containerOut(p *lifecycle.Pod, c *lifecycle.Container, creating bool) *hooks.ContainerResourceHookRequest {
	req := &hooks.ContainerResourceHookRequest{
		PodMeta: metaOf(p), ContainerMeta: &hooks.ContainerMetadata{Name: c.Name, Id: c.ID, Attempt: attempt(c)},
		ContainerAnnotations: c.Annotations, ContainerResources: resourcesOut(&c.Resources),
		PodResources: resourcesOut(p.Resources), PodAnnotations: p.Annotations, PodLabels: p.Labels,
		PodCgroupParent: p.CgroupParent, ContainerEnvs: envOut(c.Env),
	}
	if creating {
		req.ContainerMeta.Id = ""
	}
	req.ContainerResources.OomScoreAdj = c.OOMScoreAdj.V
	return req
}

func attempt(c *lifecycle.Container) uint32 {
	n, err := strconv.ParseUint(c.Annotations[restarts], 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// envOut converts a list of variables to a map. If a name occurs twice the last one counts, as for a process.
func envOut(list []string) map[string]string {
	out := make(map[string]string, len(list))
	for _, e := range list {
		name, value, _ := strings.Cut(e, "=")
		out[name] = value
	}
	return out
}

// resourcesOut converts resources; nil stays nil.
func resourcesOut(r *lifecycle.Resources) *hooks.LinuxContainerResources {
	if r == nil {
		return nil
	}
	out := &hooks.LinuxContainerResources{
		CpuPeriod: signed(r.CPU.Period.V), CpuQuota: r.CPU.Quota.V, CpuShares: signed(r.CPU.Shares.V),
		MemoryLimitInBytes: r.Memory.Limit.V, MemorySwapLimitInBytes: r.Memory.Swap.V,
		CpusetCpus: r.CPU.CPUs, CpusetMems: r.CPU.Mems, Unified: r.Unified,
	}
	for _, h := range r.Hugepages {
		out.HugepageLimits = append(out.HugepageLimits, &hooks.HugepageLimit{PageSize: h.Size, Limit: h.Limit})
	}
	return out
}

func signed(v uint64) int64 { return int64(min(v, math.MaxInt64)) }
