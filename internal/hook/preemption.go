package hook

import (
	"strconv"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Yield is the way in which a pod yields the CPU to other pods. A preemptable pod yields. If the kernel has no group
// identities, a pod with a group identity below zero can also yield, as a replacement for the identity.
type Yield int

// The ways to yield.
const (
	YieldNone   Yield = iota
	YieldIdle         // cpu.idle; if the kernel has no cpu.idle, preemptable pods get the smallest weight
	YieldWeight       // the smallest weight
)

// ParseYield returns the Yield with this name in the configuration; YieldNone for any other name.
func ParseYield(name string) Yield {
	return map[string]Yield{"idle": YieldIdle, "weight": YieldWeight}[name]
}

// Preemption makes preemptable pods yield CPU and memory, and protects memory of pods that are
// not preemptable. The annotation is that of rubik 2.0, services preemption and dynMemory. The hook uses files of Linux
// instead of openEuler's qos_level files.
type Preemption struct {
	Yield Yield
	// KernelFiles reports, by name of a file, whether the kernel has the file. The hook leaves out files that the
	// kernel lacks. If the agent does not know, the hook sets the file, and the agent reports it if the kernel refuses.
	KernelFiles map[string]lifecycle.Support
	// MemoryHigh is the memory.high of preemptable pods. MemoryLow and MemoryMin are memory.low and memory.min
	// of other pods. All are in percent of the memory limit that the runtime reports; 0 does not set the file.
	MemoryHigh, MemoryLow, MemoryMin int
	// KillTogether makes the kernel kill all processes of a preemptable pod when it kills one
	// of them because memory runs out.
	KillTogether bool
}

// The cgroup files that limit and protect memory.
const (
	memoryHighFile = "memory.high"
	memoryLowFile  = "memory.low"
	memoryMinFile  = "memory.min"
	oomGroupFile   = "memory.oom.group"
)

// PreemptionOptions tunes the preemption hook.
type PreemptionOptions struct {
	// Enabled switches the hook on. The hook is off by default, because schedulers use
	// the same annotation for another purpose.
	Enabled bool `json:"enabled"`
	// Yield is the way in which preemptable pods yield the CPU to other pods: "idle" sets cpu.idle
	// of the pod's cgroup, or the lowest weight if the kernel has no such file;
	// "weight" sets the lowest weight; "none" sets nothing.
	Yield string `json:"yield" default:"idle" check:"none|idle|weight"`
	// MemoryHigh is the memory.high of preemptable pods in percent of their memory
	// limit; 0 does not set the file.
	MemoryHigh int `json:"memoryHigh" check:"0..100"`
	// MemoryLow is the memory.low of pods that are not preemptable, and of their
	// containers, in percent of the memory limit; 0 does not set the file. An
	// authorization rule must allow memory-protection for the namespace of the pod.
	MemoryLow int `json:"memoryLow" check:"0..100"`
	// MemoryMin is the memory.min of pods that are not preemptable, and of their
	// containers, in percent of the memory limit; 0 does not set the file. An
	// authorization rule must allow memory-protection for the namespace of the pod.
	MemoryMin int `json:"memoryMin" check:"0..100"`
	// KillTogether makes the kernel kill all processes of a preemptable pod when it
	// kills one of them because memory runs out.
	KillTogether bool `json:"killTogether"`
}

// WithAllFeatures returns the hook with every feature enabled.
func (PreemptionOptions) WithAllFeatures() Hook { return Preemption{Yield: YieldIdle} }

// Make makes the hook for a node.
func (o PreemptionOptions) Make(n Node, _ *Options) (Hook, error) {
	h := Preemption{
		Yield: ParseYield(o.Yield), KernelFiles: map[string]lifecycle.Support{},
		MemoryHigh: o.MemoryHigh, MemoryLow: o.MemoryLow, MemoryMin: o.MemoryMin, KillTogether: o.KillTogether,
	}
	for _, file := range PreemptionFiles() {
		h.KernelFiles[file] = n.Probe(file).Support
	}
	return h, nil
}

// Info describes the hook.
func (h Preemption) Info() Info {
	return Info{
		Name:           "preemption",
		About:          "pods that may be preempted yield CPU and memory to others; memory is protected for pods that may not be preempted",
		Stages:         lifetimeEvents(),
		Reads:          []string{intent.RubikPreemptable},
		Sets:           []lifecycle.Field{lifecycle.Unified},
		SetsOnPod:      []lifecycle.Field{lifecycle.Unified, lifecycle.CPUShares},
		KernelFeatures: h.kernelNeeds(),
		Compose:        "sets the weight only if the hook batch does not set the pod's shares; the fallback of groupIdentity sets the same value or another file",
		Differs: []string{
			"uses cpu.idle, memory.high, memory.low, memory.min and memory.oom.group of Linux instead of openEuler's qos_level files and memory.high_async_ratio",
			"cpu.idle is set on pods, never on the directory of a QoS class, because the kubelet could then not start. So a preemptable pod yields to its sibling cgroups: a Burstable or BestEffort pod yields to pods of its own QoS class, a Guaranteed pod also to all Burstable and BestEffort pods",
			"if the kernel has no cpu.idle, the lowest weight is set instead",
			"memory.high, memory.low and memory.min are percentages of the memory limit that the runtime reports, so they are not set for a pod without a limit; they do not depend on how much memory is used",
			"memory is protected only as far as the directories of the QoS classes above protect it, which belong to the kubelet (its feature MemoryQoS) or the administrator",
			"a pod without this annotation is not changed, while rubik treats such a pod as online",
			"reversible: if a pod is not preemptable any more, the agent restores its weight and files, provided that it knows the pod's current labels and annotations (podspec)",
			"rubik's network class is not set, because Linux cannot limit bandwidth by such a class without an additional program",
		},
	}
}

// PreemptionFiles returns the cgroup files that the hook may set.
func PreemptionFiles() []string {
	return []string{cpuIdleFile, memoryHighFile, memoryLowFile, memoryMinFile, oomGroupFile}
}

// kernelMayHave returns false if the agent knows that the kernel lacks the file. It returns true if the kernel has the
// file, or if the agent does not know that.
func (h Preemption) kernelMayHave(file string) bool {
	return h.KernelFiles[file] != lifecycle.NotSupported
}

// kernelNeeds returns the kernel features that the hook needs with these options.
func (h Preemption) kernelNeeds() []string {
	var kernel []string
	switch h.Yield {
	case YieldIdle:
		kernel = append(kernel, cpuIdleFile+"|cpu")
	case YieldWeight:
		kernel = append(kernel, "cpu")
	}
	for _, f := range []struct {
		name string
		on   bool
	}{{memoryHighFile, h.MemoryHigh > 0}, {memoryLowFile, h.MemoryLow > 0}, {memoryMinFile, h.MemoryMin > 0}, {oomGroupFile, h.KillTogether}} {
		if f.on {
			kernel = append(kernel, f.name)
		}
	}
	return kernel
}

// Propose makes a preemptable pod yield, or protects the memory of a pod that is not preemptable.
func (h Preemption) Propose(in *Input, out *Output) {
	preemptable := in.Intent.Preemptable
	why := lifecycle.Reason{Hook: "preemption", Source: preemptable.Key, Text: "the pod may be preempted"}
	switch {
	case !preemptable.IsSet():
	case !preemptable.V:
		why.Text = "memory is protected for the pod"
		h.protectMemory(in, out, why)
	case in.Container == "":
		h.setYield(in, out, why)
	}
}

// setYield makes a preemptable pod yield CPU and memory.
func (h Preemption) setYield(in *Input, out *Output, why lifecycle.Reason) {
	switch {
	case h.Yield == YieldIdle && h.kernelMayHave(cpuIdleFile):
		out.setFile(in, cpuIdleFile, "1", why)
	case h.Yield != YieldNone && !in.Intent.Batch.IsSet():
		out.setNumber(in, lifecycle.CPUShares, minShares, why)
	}
	if n := percentOfLimit(in.Pristine, h.MemoryHigh); n > 0 && h.kernelMayHave(memoryHighFile) {
		out.setFile(in, memoryHighFile, strconv.FormatInt(n, 10), withText(why, "the kernel reclaims the pod's memory above this limit"))
	}
	if h.KillTogether && h.kernelMayHave(oomGroupFile) {
		out.setFile(in, oomGroupFile, "1", withText(why, "the kernel kills all processes of the pod together"))
	}
}

// protectMemory protects memory of the pod and of its containers. The kernel protects a cgroup's memory
// only as far as the memory of its parent cgroups is protected.
func (h Preemption) protectMemory(in *Input, out *Output, why lifecycle.Reason) {
	for _, k := range []struct {
		file    string
		percent int
	}{{memoryMinFile, h.MemoryMin}, {memoryLowFile, h.MemoryLow}} {
		n := percentOfLimit(in.Pristine, k.percent)
		switch {
		case n == 0:
		case in.Intent.ProtectionRefusedBy != "":
			if in.Container == "" {
				out.addProblem(lifecycle.Problem{
					Key: why.Source, Value: "false", Refused: true, Rule: in.Intent.ProtectionRefusedBy,
					Reason: "memory-protection: " + k.file + " may not be set for pods of this namespace (authorization: " + in.Intent.ProtectionRefusedBy + ")",
				})
			}
		case h.kernelMayHave(k.file):
			out.setFile(in, k.file, strconv.FormatInt(n, 10), why)
		}
	}
}

// percentOfLimit returns the percentage of the memory limit that the runtime reports, in bytes of whole pages; 0 if
// there is no limit.
func percentOfLimit(r *lifecycle.Resources, percent int) int64 {
	if r == nil || r.Memory.Limit.V <= 0 || percent <= 0 {
		return 0
	}
	const page = 4096
	limit := r.Memory.Limit.V
	return (limit/100*int64(percent) + limit%100*int64(percent)/100) / page * page
}
