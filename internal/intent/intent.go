package intent

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Class is a quality of service class of Trimtab. Every dialect maps its own classes to these classes.
type Class int

// The classes. None is the class of a pod without a class in any dialect. With the placement policy pools, pods of
// class System run on the CPUs for the system or of named pools, pods of class Dedicated own CPUs, pods of class Shared
// run in a shared pool, and pods of class Reclaimed run on CPUs that shared pools do not need or that other pods lend.
const (
	None Class = iota
	System
	Dedicated
	Shared
	Reclaimed
)

// String returns the class's name.
func (c Class) String() string {
	return [...]string{"none", "system", "dedicated", "shared", "reclaimed"}[c]
}

// QoS is the Kubernetes QoS class of a pod. The agent reads it from the pod's cgroup parent, or from the pod's spec if
// the pod has no cgroup parent.
type QoS int

// The Kubernetes QoS classes.
const (
	Guaranteed QoS = iota
	Burstable
	BestEffort
	// UnknownQoS is the class of a pod without a cgroup parent and without a known spec, such as
	// a pod that crictl created.
	UnknownQoS
)

// String returns the name of the class in Kubernetes.
func (q QoS) String() string {
	return [...]string{"Guaranteed", "Burstable", "BestEffort", "unknown"}[q]
}

// Sourced is a value with its source.
type Sourced[T any] struct {
	V   T      // the value
	Key string // the key of a label or annotation, or the name of a resource claim; "" if the value is not set
}

// IsSet reports whether a source has set the value.
func (s Sourced[T]) IsSet() bool { return s.Key != "" }

// Batch is a container's request for batch resources: resources that other pods requested and do not use.
// CPU is in milli-CPUs, memory in bytes; 0 or less means none.
type Batch struct {
	RequestCPU  int64
	LimitCPU    int64
	LimitMemory int64
	// From says where the agent got the pod's spec, if the pod's spec makes the request. If an annotation makes the
	// request, From is "".
	From lifecycle.Source
}

// GPU are the GPUs that a scheduler allocated.
type GPU struct {
	Minors []int // device minors, in the scheduler's order
	// UUIDs are the UUIDs of the same devices, "" for a device without a UUID. The list is empty if no device has a
	// UUID.
	UUIDs []string
	Share *GPUShare // nil if the pod gets whole GPUs
	// NodesRefusedBy names the authorization rule that refuses the device nodes of the GPUs; "" if no rule does. The
	// container then still gets the environment variables.
	NodesRefusedBy string
}

// GPUShare is the part of a GPU that a pod may use. The library HAMi-core enforces it.
type GPUShare struct {
	Memory int64 // bytes
	Core   int64 // percent of the multiprocessors; 0 for no limit
}

// NUMABinding is a pod's request for NUMA nodes. The zero value binds the pod's CPUs and memory to the
// same nodes, as few as possible.
type NUMABinding struct {
	// Exclusive gives the pod whole nodes, with all CPUs and memory that are free on them.
	Exclusive bool
	// Count is the exact number of nodes; 0 for as few as possible. IDs are the ids of the requested nodes;
	// empty for any nodes.
	Count int
	IDs   []int
	// Even takes the same number of CPUs from each node.
	Even bool
	// WholeCores takes no core on which another pod owns a thread.
	WholeCores bool
	// BySocket uses no more sockets than the CPUs need.
	BySocket bool
	// ExcludeOthers means that pods of other classes and pools must not run on the nodes.
	ExcludeOthers bool
}

// String describes the request, for users.
func (b NUMABinding) String() string {
	parts := []string{"as few NUMA nodes as possible"}
	switch {
	case len(b.IDs) > 0:
		parts[0] = "NUMA nodes " + topology.FormatList(b.IDs)
	case b.Count > 0:
		parts[0] = fmt.Sprintf("%d NUMA nodes", b.Count)
	}
	for _, o := range []struct {
		set  bool
		text string
	}{
		{b.Exclusive, "exclusive"}, {b.Even, "the same number of CPUs from each"}, {b.WholeCores, "whole cores"},
		{b.BySocket, "no more sockets than needed"}, {b.ExcludeOthers, "without pods of other classes"},
	} {
		if o.set {
			parts = append(parts, o.text)
		}
	}
	return strings.Join(parts, ", ")
}

// Pod is the intent of a pod: all requests that its labels, annotations and resource claims make.
type Pod struct {
	Class     Sourced[Class]
	ClassName string // the name of the class in the dialect, for example LSR
	QoS       QoS
	// CPUs are the CPU numbers that a scheduler assigned to the pod.
	CPUs Sourced[[]int]
	// Nodes are the NUMA nodes that a scheduler chose for the pod's CPUs.
	Nodes Sourced[[]int]
	// Pool is the name of the shared or system pool that the pod requests; "" for
	// none.
	Pool Sourced[string]
	// NUMA binds the pod's CPUs and memory to NUMA nodes. Cores says how the pod's CPUs are spread over cores.
	NUMA  Sourced[NUMABinding]
	Cores Sourced[CoreUse]
	// CoreKind is the kind of cores that the pod prefers for CPUs that it owns. PrefersIsolatedCPUs reports whether the
	// pod prefers isolated CPUs (isolcpus).
	CoreKind            Sourced[topology.CoreKind]
	PrefersIsolatedCPUs Sourced[bool]
	Batch               Sourced[map[string]Batch] // by container name
	GPU                 Sourced[GPU]
	// UnsetQuota reports whether the agent removes the CPU quota of containers that own CPUs.
	UnsetQuota Sourced[bool]
	// RDMA are the PCI addresses of the functions of RDMA cards that a scheduler allocated.
	RDMA   Sourced[[]string]
	CPUQoS Sourced[CPUQoS]
	// OOMScore is the oom_score_adj of the pod's containers. OOMScores has the scores of single
	// containers by name.
	OOMScore  Sourced[int64]
	OOMScores Sourced[map[string]int64]
	Hugepages Sourced[Hugepages]
	// Disks are limits of the pod's reads and writes. BlockIOClass is a class of the runtime's
	// block I/O configuration.
	Disks        Sourced[[]DiskLimit]
	BlockIOClass Sourced[string]
	// RDT are shares of caches and memory bandwidth. RDTClass is a class of the runtime's RDT
	// configuration.
	RDT       Sourced[RDTShares]
	RDTClass  Sourced[string]
	CoreSched Sourced[CoreSchedRequest]
	// Preemptable is true if the pod yields CPU and memory to others, and false if it requests memory
	// protection.
	Preemptable Sourced[bool]
	// ProtectionRefusedBy names the rule that refuses memory protection to the pod; "" if no rule does.
	ProtectionRefusedBy string
	// HooksRefusedBy names the rule that refuses OCI hooks that the node runs because of an annotation; "" if no rule
	// does.
	HooksRefusedBy string
	// PluginValuesRefusedBy names the rule that refuses variables, annotations, mounts and devices of resource
	// plugins; "" if no rule does.
	PluginValuesRefusedBy string
	// Burst is the CPU time in µs that a container may use above its quota in one period, if it
	// used less than its quota in earlier periods.
	Burst Sourced[int64]
	// CacheLevel is the name of a level of cache and memory bandwidth, such as "low"; CacheLevels has all levels.
	CacheLevel Sourced[string]
	// CPUEnv are environment variables that tell containers their CPUs.
	CPUEnv Sourced[CPUVariables]
	// Ulimits, IOPriority, Scheduler and MemPolicy are the process limits, the I/O priority, the
	// scheduling policy and the memory policy that containers start with. Sysctls are kernel
	// parameters of the containers' namespaces.
	Ulimits    Sourced[PerContainer[[]lifecycle.Rlimit]]
	IOPriority Sourced[PerContainer[lifecycle.IOPriority]]
	Scheduler  Sourced[PerContainer[lifecycle.Scheduler]]
	MemPolicy  Sourced[PerContainer[lifecycle.MemoryPolicy]]
	Sysctls    Sourced[PerContainer[map[string]string]]
	// DeviceNodes are devices of the host by their numbers. Mounts are files and directories of the
	// host. CDIDevices are qualified names of CDI devices. NetDevices are network interfaces that
	// move from the host into containers.
	DeviceNodes Sourced[PerContainer[[]lifecycle.Device]]
	Mounts      Sourced[PerContainer[[]HostMount]]
	CDIDevices  Sourced[PerContainer[[]string]]
	NetDevices  Sourced[PerContainer[[]NetDevice]]
	// ExclusiveDevices are CDI devices that no other container may have.
	ExclusiveDevices Sourced[PerContainer[[]DeviceRequest]]
	// PodInterfaces are network interfaces that move from the host into the pod when the pod's first
	// container is created.
	PodInterfaces Sourced[[]NetDevice]
	// WritableCgroups lets containers write to their own cgroups. ClosID, Schemata and
	// Monitoring are the members of intelRdt in the OCI spec.
	WritableCgroups Sourced[PerContainer[bool]]
	ClosID          Sourced[PerContainer[string]]
	Schemata        Sourced[PerContainer[[]string]]
	Monitoring      Sourced[PerContainer[bool]]
	// Balloon is the name of a type of balloons, as in nri-plugins: the container runs in a balloon of this type.
	// HideThreads is true if the container may run on only one thread of each core of the balloon, and false if it may
	// run on all threads. PreserveCPU and PreserveMemory make the container keep the CPUs and the memory nodes that the
	// kubelet requested from the runtime. MemoryKinds are the kinds of memory nodes that a container requests.
	Balloon                     Sourced[PerContainer[string]]
	HideThreads                 Sourced[PerContainer[bool]]
	PreserveCPU, PreserveMemory Sourced[PerContainer[bool]]
	MemoryKinds                 Sourced[PerContainer[[]topology.MemoryKind]]
	// ColdStart is the number of seconds for which a container has only slow memory after it started.
	ColdStart Sourced[PerContainer[int]]
	// SchedulingClass is a container's scheduling class, by name.
	SchedulingClass Sourced[PerContainer[string]]
	// MemoryRequest requests a NUMA memory policy by the name of a class, or has the policy itself. The policy can have
	// a name such as cpu-nodes in place of a list of nodes. MemPolicy has priority over MemoryRequest.
	MemoryRequest Sourced[PerContainer[MemoryRequest]]
	// MemoryClass is a container's memory class, by name. MemoryHigh and SwapMax are the values of memory.high
	// and memory.swap.max.
	MemoryClass         Sourced[PerContainer[string]]
	MemoryHigh, SwapMax Sourced[PerContainer[MemoryBytes]]
	// PreferShared, PreferIsolated and PreferReserved request shared, isolated or reserved CPUs if they are
	// true, and other CPUs if they are false.
	PreferShared, PreferIsolated, PreferReserved Sourced[PerContainer[bool]]
	// HintKinds, HintDeny and HintAllow select, by kind and by path, the devices near which a container is placed.
	HintKinds           Sourced[PerContainer[HintKinds]]
	HintDeny, HintAllow Sourced[PerContainer[HintPaths]]
	// RequireIsolated means that a container which owns CPUs must own isolated CPUs (isolcpus). The agent refuses the
	// container if there are not enough of them.
	RequireIsolated Sourced[PerContainer[bool]]
	// UnlimitedLevel is the size of the part of the node in which a Burstable container without a CPU limit runs, such
	// as "package" or "numa". Affinity and AntiAffinity have the affinities of each container, by its name.
	UnlimitedLevel         Sourced[PerContainer[string]]
	Affinity, AntiAffinity Sourced[map[string][]Affinity]
	// OnlyGrantedRule names the authorization rule that refuses GPUs (as device nodes or CDI devices) and RDMA devices,
	// except those that Kubernetes granted to the container. OnlyGrantedRule is "" if no such rule applies.
	OnlyGrantedRule string
	// LibraryGrantedRule names the authorization rule that refuses the library HAMi-core, with two exceptions:
	// Kubernetes granted the GPU to the container, or the agent gives the container the GPU's device.
	// LibraryGrantedRule is "" if no such rule applies.
	LibraryGrantedRule string
	Problems           []lifecycle.Problem
	// problems collects the problems while Read reads the pod.
	problems lifecycle.ProblemList
}

// Malformed returns the problems for which strict mode refuses a pod.
func (p *Pod) Malformed() []lifecycle.Problem {
	return slices.DeleteFunc(slices.Clone(p.Problems), func(q lifecycle.Problem) bool { return q.Warning || q.Unserved })
}

// dialect is a system whose requests the agent reads. All dialects but kubernetes have their own keys for labels and
// annotations of pods.
type dialect struct {
	name  string
	title string // the heading of the system's keys in docs/keys.md; "" if the system has no keys
	// read reads the system's labels and annotations into an intent; nil if no key is read.
	read func(*podTexts, *lifecycle.PodSpec, *Pod)
	keys func() []Key // nil if the system has no keys
}

// dialects lists all dialects, the most trusted first. A new dialect needs one file, and one line here.
func dialects() []dialect {
	return []dialect{
		{"koordinator", "Koordinator", readKoordinator, koordinatorKeys},
		{"katalyst", "Katalyst", readKatalyst, katalystKeys},
		{"rubik", "rubik and related projects", readRubik, rubikKeys},
		{"trimtab", "Trimtab", readTrimtab, trimtabKeys},
		{"kubernetes", "", readKubernetes, nil},
		{"nri-plugins", "nri-plugins", readNRIPlugins, nriPluginsKeys},
		{"nri", "Plugins of the NRI repository", readNRI, nriKeys},
	}
}

// Dialects returns the names of all dialects that can be read, most trusted first.
func Dialects() []string {
	var names []string
	for _, d := range dialects() {
		if d.read != nil {
			names = append(names, d.name)
		}
	}
	return names
}

// KeySystems returns the name and the title of each system that has keys.
func KeySystems() [][2]string {
	var all [][2]string
	for _, d := range dialects() {
		if d.keys != nil {
			all = append(all, [2]string{d.name, d.title})
		}
	}
	return all
}

// Read reads a pod in several dialects, in the given order: the most trusted dialect first. An earlier dialect has
// priority, and Read reports a later dialect that disagrees. The parameter spec is nil if the pod's spec is not known.
// Read assumes that the node serves every request.
func Read(pod *lifecycle.Pod, spec *lifecycle.PodSpec, order []string) *Pod {
	return (*ServingSettings)(nil).Read(pod, spec, order)
}

// Read reads a pod like the function Read. It removes and reports requests that this node does not serve.
// A nil ServingSettings serves every request.
func (s *ServingSettings) Read(pod *lifecycle.Pod, spec *lifecycle.PodSpec, order []string) *Pod {
	out, t := &Pod{}, podTextsOf(pod, spec)
	if len(pod.Claimed) > 0 {
		var claimed Pod
		readClaimed(pod, &claimed)
		s.removeUnserved(&claimed)
		out.merge(&claimed)
	}
	var requests Pod // reused for all dialects, because it is large
	all := dialects()
	for _, name := range order {
		for _, d := range all {
			if d.name == name && d.read != nil {
				requests = Pod{}
				d.read(t, spec, &requests)
				s.removeUnserved(&requests)
				out.reportOverruled(pod, &requests)
				out.merge(&requests)
			}
		}
	}
	out.QoS = qosOf(t.parent, spec) // for all dialects
	out.problems.Add(t.problems...)
	if text, forged := forgesRecord(pod); forged {
		out.reportRefused(RecordKey, text, "only the agent may write this annotation, and only to containers; remove it from the pod")
	}
	out.reportUnread(t, order)
	out.Problems, out.problems = out.problems.List(), lifecycle.ProblemList{}
	return out
}

// merge adds the requests of a dialect with less priority.
func (p *Pod) merge(o *Pod) {
	p.problems.Add(o.problems.List()...)
	p.QoS = max(p.QoS, o.QoS)
	switch {
	case !o.Class.IsSet():
	case !p.Class.IsSet():
		p.Class, p.ClassName = o.Class, o.ClassName
	case p.Class.V != o.Class.V:
		p.problems.Add(lifecycle.Problem{
			Key: o.Class.Key, Value: o.ClassName,
			Reason: fmt.Sprintf("disagrees with %s, which is %s and has priority", p.Class.Key, p.Class.V),
		})
		o.Preemptable = Sourced[bool]{} // o.Preemptable comes from the same key as o.Class, which the problem above reports
	}
	setIfUnset(&p.Cores, o.Cores)
	for _, r := range requests {
		if r.mergeFrom != nil {
			r.mergeFrom(p, o)
		}
	}
}

// setIfUnset sets the value have to o, unless a source has set it before.
func setIfUnset[T any](have *Sourced[T], o Sourced[T]) {
	if !have.IsSet() {
		*have = o
	}
}

// reportMalformed reports a label or annotation that is malformed or contradicts another one.
func (p *Pod) reportMalformed(key, value, format string, args ...any) {
	p.addProblem(lifecycle.Problem{Key: key}, value, format, args)
}

// reportWarning reports a probable mistake, for which strict mode does not refuse the pod.
func (p *Pod) reportWarning(key, value, format string, args ...any) {
	p.addProblem(lifecycle.Problem{Key: key, Warning: true}, value, format, args)
}

// reportRefused reports a well-formed request that the agent does not grant.
func (p *Pod) reportRefused(key, value, format string, args ...any) {
	p.addProblem(lifecycle.Problem{Key: key, Refused: true}, value, format, args)
}

// addProblem adds a problem. If there are too many problems, it only counts the problem.
func (p *Pod) addProblem(q lifecycle.Problem, value, format string, args []any) {
	if !p.problems.Full(q) {
		q.Value, q.Reason = printable(value), fmt.Sprintf(format, args...)
	}
	p.problems.Add(q)
}

// RecordKey is the annotation in which the agent stores its record of a container. A pod must not
// have it.
const RecordKey = "trimtab.io/record"

// Printable shortens an untrusted text and replaces invisible characters.
func Printable(s string) string { return printable(s) }

// printable shortens an untrusted text and replaces invisible characters (control characters,
// bidirectional marks, unusual spaces), so that logs and terminals can show it.
func printable(s string) string {
	const most = 120
	if len(s) > most {
		s = s[:most-3] + "..."
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
