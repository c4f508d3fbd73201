package intent

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// The annotations of nri-plugins (0.14) that the agent reads. Each also has the scoped forms KEY/pod and
// KEY/container.NAME. KEY/container.NAME has the highest priority, then KEY/pod, then KEY (pkg/resmgr/cache,
// GetEffectiveAnnotation).
const (
	// NRIBalloon names the type of a container's balloon.
	NRIBalloon = "balloon.balloons.resource-policy.nri.io"
	// NRIHideThreads lets a container run on one thread of each core of its balloon ("true") or
	// on all threads ("false"). The annotation has priority over the option of the balloon type.
	NRIHideThreads = "hide-hyperthreads.resource-policy.nri.io"
	// NRIPreserveCPU and NRIPreserveMemory make a container keep the CPUs or the memory nodes that the kubelet
	// requested from the runtime.
	NRIPreserveCPU    = "cpu.preserve.resource-policy.nri.io"
	NRIPreserveMemory = "memory.preserve.resource-policy.nri.io"
	// NRISchedulingClass names the scheduling class of a container.
	NRISchedulingClass = "scheduling-class.resource-policy.nri.io"
	// NRIMemoryType lists kinds of memory: DRAM, HBM, PMEM.
	NRIMemoryType = "memory-type.resource-policy.nri.io"
	// NRIColdStart is the time for which a container has only PMEM after it started.
	NRIColdStart = "cold-start.resource-policy.nri.io"
	// NRIPreferShared with "true" lets a container share CPUs although it requests whole CPUs. With "false" the
	// container owns CPUs, even if the configuration prefers shared CPUs. NRIPreferIsolated selects isolated CPUs or
	// other CPUs for the container. NRIPreferReserved with "true" lets it run on reserved CPUs. With "false" it runs on
	// other CPUs, even if the configuration gives its namespace reserved CPUs.
	NRIPreferShared   = "prefer-shared-cpus.resource-policy.nri.io"
	NRIPreferIsolated = "prefer-isolated-cpus.resource-policy.nri.io"
	NRIPreferReserved = "prefer-reserved-cpus.resource-policy.nri.io"
	// NRIRequireIsolated means that a container which owns CPUs must own isolated CPUs. If there are not enough of
	// them, the agent refuses the container.
	NRIRequireIsolated = "require-isolated-cpus.resource-policy.nri.io"
	// NRIUnlimited says in how large a part of the node a Burstable container without a CPU limit runs, such as
	// "package" or "numa".
	NRIUnlimited = "unlimited-burstable.resource-policy.nri.io"
	// NRIMemoryQoS names a memory class. NRIMemoryHigh and NRISwapMax are the values of the files memory.high and
	// memory.swap.max. These are the keys of the plugin memory-qos.
	NRIMemoryQoS  = "class.memory-qos.nri.io"
	NRIMemoryHigh = "memory.high.memory-qos.nri.io"
	NRISwapMax    = "memory.swap.max.memory-qos.nri.io"
	// NRIMemoryPolicyClass names a class of NUMA memory policies. NRIMemoryPolicyText has a policy. These are the
	// keys of the plugin memory-policy.
	NRIMemoryPolicyClass = "class.memory-policy.nri.io"
	NRIMemoryPolicyText  = "policy.memory-policy.nri.io"
	// NRIHints lists the kinds of devices near which the agent places a container. NRIDenyHints lists paths of devices
	// that do not count. NRIAllowHints lists exceptions from NRIDenyHints.
	NRIHints      = "topologyhints.resource-policy.nri.io"
	NRIDenyHints  = "deny.topologyhints.resource-policy.nri.io"
	NRIAllowHints = "allow.topologyhints.resource-policy.nri.io"
	// NRIAffinity and NRIAntiAffinity list affinities by container name. They have no scoped
	// forms.
	NRIAffinity     = "resource-policy.nri.io/affinity"
	NRIAntiAffinity = "resource-policy.nri.io/anti-affinity"
)

// maxColdStart is the longest cold start, as in nri-plugins.
const maxColdStart = 3600 // s

// maxBalloonTypeName is the greatest length of the name of a balloon type in bytes, as in the configuration.
const maxBalloonTypeName = 63

// MemoryKinds returns the kinds of memory that NUMA nodes can have, by their names.
func MemoryKinds() map[string]topology.MemoryKind {
	return map[string]topology.MemoryKind{"DRAM": topology.DRAM, "HBM": topology.HBM, "PMEM": topology.PMEM}
}

// readNRIPlugins reads the annotations of nri-plugins.
func readNRIPlugins(t *podTexts, _ *lifecycle.PodSpec, out *Pod) {
	s := t.findScopes(out)
	out.Balloon = readScoped(t, s, out, t.balloonType, NRIBalloon)
	out.SchedulingClass = readScoped(t, s, out, t.className, NRISchedulingClass)
	out.MemoryClass = readScoped(t, s, out, t.className, NRIMemoryQoS)
	out.MemoryHigh = readScoped(t, s, out, t.memoryBytes, NRIMemoryHigh)
	out.MemoryRequest = t.memoryRequests(s, out)
	out.SwapMax = readScoped(t, s, out, t.memoryBytes, NRISwapMax)
	out.HideThreads = readScoped(t, s, out, t.boolean, NRIHideThreads)
	out.PreserveCPU = readScoped(t, s, out, t.boolean, NRIPreserveCPU)
	out.PreserveMemory = readScoped(t, s, out, t.boolean, NRIPreserveMemory)
	out.MemoryKinds = readScoped(t, s, out, t.memoryKinds, NRIMemoryType)
	out.ColdStart = readScoped(t, s, out, t.coldStart, NRIColdStart)
	out.PreferShared = readScoped(t, s, out, t.boolean, NRIPreferShared)
	out.PreferIsolated = readScoped(t, s, out, t.boolean, NRIPreferIsolated)
	out.RequireIsolated = readScoped(t, s, out, t.boolean, NRIRequireIsolated)
	out.PreferReserved = readScoped(t, s, out, t.boolean, NRIPreferReserved)
	out.UnlimitedLevel = readScoped(t, s, out, t.level, NRIUnlimited)
	out.HintKinds = readScoped(t, s, out, t.hintKinds, NRIHints)
	out.HintDeny = readScoped(t, s, out, t.hintPaths, NRIDenyHints)
	out.HintAllow = readScoped(t, s, out, t.hintPaths, NRIAllowHints)
	out.Affinity = t.affinities(out, NRIAffinity, 1)
	out.AntiAffinity = t.affinities(out, NRIAntiAffinity, -1)
}

// UnlimitedLevels returns the parts of a node in which the agent can place Burstable containers without a CPU limit, by
// their names in the configuration and in annotations.
func UnlimitedLevels() []string { return []string{"system", "package", "die", "numa", "l3cache"} }

// level reads one of UnlimitedLevels. The text "socket" means "package".
func (t *podTexts) level(key string) (string, error) {
	text, err := t.required(key)
	if text == "socket" {
		text = "package"
	}
	if err == nil && !slices.Contains(UnlimitedLevels(), text) {
		err = fmt.Errorf("want one of %s", strings.Join(UnlimitedLevels(), ", "))
	}
	return text, err
}

// required returns the text of an annotation. It returns an error if the text is empty, or if it exceeds the limits for
// the annotations of one pod.
func (t *podTexts) required(key string) (string, error) {
	text := strings.TrimSpace(t.annotation(key))
	if text == "" {
		return "", fmt.Errorf("is empty, or exceeds the limits for the annotations of one pod")
	}
	return text, nil
}

// balloonType reads the name of a balloon type.
func (t *podTexts) balloonType(key string) (string, error) {
	text, err := t.required(key)
	if err == nil && len(text) > maxBalloonTypeName {
		err = fmt.Errorf("is longer than %d bytes", maxBalloonTypeName)
	}
	return text, err
}

// className reads the name of a class of the agent's configuration: a scheduling class or a memory class.
func (t *podTexts) className(key string) (string, error) {
	text, err := t.required(key)
	if err == nil && len(text) > maxClassName {
		err = fmt.Errorf("is longer than %d bytes", maxClassName)
	}
	return text, err
}

// MemoryBytes is the value of a cgroup v2 file that limits memory.
type MemoryBytes int64

// NoLimit is the MemoryBytes for "no limit", which the kernel's files write as "max".
const NoLimit MemoryBytes = math.MaxInt64

// String returns the text for the kernel's file.
func (b MemoryBytes) String() string {
	if b == NoLimit {
		return "max"
	}
	return strconv.FormatInt(int64(b), 10)
}

// memoryBytes reads "max" or a number of bytes. Like the kernel, it rounds the number down to whole pages.
func (t *podTexts) memoryBytes(key string) (MemoryBytes, error) {
	text, err := t.required(key)
	if err != nil || text == "max" {
		return NoLimit, err
	}
	bytes, err := quantity(text).integer()
	if err == nil && bytes < 0 {
		err = fmt.Errorf(`want bytes, such as 512Mi, or "max"`)
	}
	const page = 4096
	return MemoryBytes(bytes / page * page), err
}

// boolean reads "true" or "false". Other texts are errors.
func (t *podTexts) boolean(key string) (bool, error) {
	text, err := t.required(key)
	if err == nil && text != "true" && text != "false" {
		err = fmt.Errorf(`want "true" or "false"`)
	}
	return text == "true", err
}

// durationPattern matches hours, minutes and seconds in Go's form, without fractions.
var durationPattern = regexp.MustCompile(`^(?:(\d{1,4})h)?(?:(\d{1,4})m)?(?:(\d{1,4})s)?$`)

// coldStart reads the duration of a cold start, in seconds. The annotation is YAML with the key duration.
func (t *podTexts) coldStart(key string) (seconds int, err error) {
	var text struct {
		Duration string `json:"duration"`
	}
	if err := t.decodeStrict(key, &text); err != nil {
		return 0, err
	}
	match := durationPattern.FindStringSubmatch(text.Duration)
	for i, unit := range []int{3600, 60, 1} {
		if match != nil && match[i+1] != "" {
			n, _ := strconv.Atoi(match[i+1]) // at most four digits
			seconds += n * unit
		}
	}
	if seconds == 0 || seconds > maxColdStart {
		return 0, errors.New("want a duration of at least 1s and at most 1h, such as {duration: 60s}")
	}
	return seconds, nil
}

// memoryKinds reads a list of the names in MemoryKinds. It returns each kind once, sorted.
func (t *podTexts) memoryKinds(key string) (kinds []topology.MemoryKind, err error) {
	text, err := t.required(key)
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

// booleanRequest returns the request for a field of type bool. A pod makes the request only if it sets the field to
// true, for the whole pod or for one container.
func booleanRequest(of func(*Pod) *Sourced[PerContainer[bool]]) request {
	r := fieldRequest(of, describePerContainer)
	r.key = func(p *Pod) string {
		asked := of(p).V
		if asked.Pod.V {
			return asked.Pod.Key
		}
		for _, name := range sortedKeys(asked.ByContainer) {
			if asked.ByContainer[name].V {
				return asked.ByContainer[name].Key
			}
		}
		return ""
	}
	return r
}
