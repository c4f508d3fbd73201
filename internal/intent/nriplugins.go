package intent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// The annotations of nri-plugins' policies (0.14) that are read, without their scopes: each also
// has the forms KEY/pod and KEY/container.NAME. A container's own form counts first, then the
// pod's, then the bare key (pkg/resmgr/cache, GetEffectiveAnnotation).
const (
	// NRIBalloon names the type of a container's balloon.
	NRIBalloon = "balloon.balloons.resource-policy.nri.io"
	// NRIHideThreads lets a container run on one thread of each core of its balloon ("true") or
	// on all of them ("false"), whatever the type says.
	NRIHideThreads = "hide-hyperthreads.resource-policy.nri.io"
	// NRIPreserveCPU and NRIPreserveMemory keep the CPUs, or the memory nodes, as the runtime
	// requests them.
	NRIPreserveCPU    = "cpu.preserve.resource-policy.nri.io"
	NRIPreserveMemory = "memory.preserve.resource-policy.nri.io"
	// NRISchedulingClass names the scheduling class of a container.
	NRISchedulingClass = "scheduling-class.resource-policy.nri.io"
	// NRIMemoryType lists kinds of memory: DRAM, HBM, PMEM.
	NRIMemoryType = "memory-type.resource-policy.nri.io"
	// NRIPreferShared lets a container share CPUs ("true") that would own some, or own some
	// ("false"). NRIPreferIsolated lets it own isolated CPUs or others. NRIPreferReserved lets it
	// run on the reserved CPUs, or on others although its namespace is one of theirs.
	NRIPreferShared   = "prefer-shared-cpus.resource-policy.nri.io"
	NRIPreferIsolated = "prefer-isolated-cpus.resource-policy.nri.io"
	NRIPreferReserved = "prefer-reserved-cpus.resource-policy.nri.io"
	// NRIUnlimited names the part of the node for a Burstable container without CPU limit.
	NRIUnlimited = "unlimited-burstable.resource-policy.nri.io"
	// NRIAffinity and NRIAntiAffinity list, for containers of the pod by name, the others that
	// they should be near, or far from. They have no scopes.
	NRIAffinity     = "resource-policy.nri.io/affinity"
	NRIAntiAffinity = "resource-policy.nri.io/anti-affinity"
)

// maxTypeName limits the name of a type of balloons, like the configuration does.
const maxTypeName = 63

// MemoryKinds returns the kinds of memory that nodes have, by their names.
func MemoryKinds() map[string]topology.MemoryKind {
	return map[string]topology.MemoryKind{"DRAM": topology.DRAM, "HBM": topology.HBM, "PMEM": topology.PMEM}
}

func readNRIPlugins(t *texts, _ *lifecycle.PodSpec, out *Pod) {
	s := t.scoped(out)
	out.Balloon = readScoped(t, s, out, t.balloonType, NRIBalloon)
	out.SchedulingClass = readScoped(t, s, out, t.schedulingClass, NRISchedulingClass)
	out.HideThreads = readScoped(t, s, out, t.truth, NRIHideThreads)
	out.PreserveCPU = readScoped(t, s, out, t.truth, NRIPreserveCPU)
	out.PreserveMemory = readScoped(t, s, out, t.truth, NRIPreserveMemory)
	out.MemoryKinds = readScoped(t, s, out, t.memoryKinds, NRIMemoryType)
	out.PreferShared = readScoped(t, s, out, t.truth, NRIPreferShared)
	out.PreferIsolated = readScoped(t, s, out, t.truth, NRIPreferIsolated)
	out.PreferReserved = readScoped(t, s, out, t.truth, NRIPreferReserved)
	out.Unlimited = readScoped(t, s, out, t.level, NRIUnlimited)
	out.Affinity = t.neighbours(out, NRIAffinity)
	out.AntiAffinity = t.neighbours(out, NRIAntiAffinity)
}

// Levels are the parts of a node that containers without CPU limit can be placed in, by the names
// that they have in configuration and annotations.
func Levels() []string { return []string{"system", "package", "die", "numa", "l3cache"} }

func (t *texts) level(key string) (string, error) {
	text, err := t.limited(key)
	if text == "socket" {
		text = "package"
	}
	if err == nil && !slices.Contains(Levels(), text) {
		err = fmt.Errorf("want one of %s", strings.Join(Levels(), ", "))
	}
	return text, err
}

// neighbours reads the containers that containers should be near, or far from. The long form,
// with expressions, is not served.
func (t *texts) neighbours(out *Pod, key string) (of Sourced[map[string][]string]) {
	text := t.annotations.of(key)
	if text == "" {
		return of
	}
	all := map[string][]string{}
	if err := t.structured(key, &all); err != nil {
		out.problem(key, text, "%v; want lists of containers by name, as in c0: [c1, c2]", err)
		return of
	}
	return Sourced[map[string][]string]{all, key}
}

// limited returns an annotation, or an error if it is beyond the limits of one pod.
func (t *texts) limited(key string) (string, error) {
	text := strings.TrimSpace(t.annotation(key))
	if text == "" {
		return "", fmt.Errorf("is empty, or beyond the limits of one pod")
	}
	return text, nil
}

func (t *texts) balloonType(key string) (string, error) {
	text, err := t.limited(key)
	if err == nil && len(text) > maxTypeName {
		err = fmt.Errorf("is longer than %d bytes", maxTypeName)
	}
	return text, err
}

func (t *texts) schedulingClass(key string) (string, error) {
	text, err := t.limited(key)
	if err == nil && len(text) > maxClassName {
		err = fmt.Errorf("is longer than %d bytes", maxClassName)
	}
	return text, err
}

func (t *texts) truth(key string) (bool, error) {
	text, err := t.limited(key)
	if err == nil && text != "true" && text != "false" {
		err = fmt.Errorf(`want "true" or "false"`)
	}
	return text == "true", err
}

func (t *texts) memoryKinds(key string) (kinds []topology.MemoryKind, err error) {
	text, err := t.limited(key)
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(text, ",") {
		kind, known := MemoryKinds()[strings.ToUpper(strings.TrimSpace(name))]
		if !known {
			return nil, fmt.Errorf("want a list of DRAM, HBM and PMEM")
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds, nil
}

// affirms is a request by annotations of which "false" asks for nothing.
func affirms(of func(*Pod) *Sourced[PerContainer[bool]]) request {
	r := field(of, perContainer)
	r.key = func(p *Pod) string {
		asked := of(p).V
		if asked.Pod.V {
			return asked.Pod.Key
		}
		for _, name := range sortedKeys(asked.Own) {
			if asked.Own[name].V {
				return asked.Own[name].Key
			}
		}
		return ""
	}
	return r
}
