package intent

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Class is the quality of service class; every dialect maps its own classes to it.
type Class int

// The classes. None is a pod that no dialect classifies.
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

// QoS is the Kubernetes QoS class, from the pod's cgroup path.
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

// String returns the name Kubernetes uses.
func (q QoS) String() string {
	return [...]string{"Guaranteed", "Burstable", "BestEffort", "unknown"}[q]
}

// Sourced is a value with the label or annotation key that it came from.
type Sourced[T any] struct {
	V   T
	Key string // "" if no key has set it
}

// IsSet reports whether some dialect has set the value.
func (s Sourced[T]) IsSet() bool { return s.Key != "" }

// Batch is a container's request for batch resources, which the node borrows from idle pods.
// CPU is in milli-CPUs, memory in bytes; 0 or less means none.
type Batch struct {
	RequestCPU  int64
	LimitCPU    int64
	LimitMemory int64
	// From is the source of the pod's spec if the request came from the spec, not from the key.
	From lifecycle.Source
}

// GPU are the GPUs that a scheduler allocated.
type GPU struct {
	Minors []int // device minors, in the scheduler's order
	// UUIDs are the UUIDs of the same devices, "" for a device without a UUID; empty if no
	// device has one.
	UUIDs  []string
	Shared *GPUShare
	// NodesRefused names the authorization rule that refuses the device nodes; the environment
	// is still granted.
	NodesRefused string
}

// GPUShare is a part of one GPU, isolated by HAMi-core.
type GPUShare struct {
	Memory int64 // bytes
	Core   int64 // percent of the multiprocessors; 0 if not given
}

// NUMABinding is a pod's request for NUMA nodes. The zero value binds its CPUs and memory to the
// same nodes, as few as possible.
type NUMABinding struct {
	// Exclusive gives the pod whole nodes, with all their free CPUs and memory.
	Exclusive bool
	// Count is the exact number of nodes; 0 for as few as possible. IDs are the exact nodes;
	// empty for any.
	Count int
	IDs   []int
	// Even takes the same number of CPUs from each node.
	Even bool
	// WholeCores takes no core on which another pod owns a thread.
	WholeCores bool
	// BySocket uses no more sockets than the CPUs need.
	BySocket bool
	// ExcludeOthers keeps pods of other classes and pools off the nodes.
	ExcludeOthers bool
}

// String says in words what is requested, for users.
func (b NUMABinding) String() string {
	said := []string{"as few NUMA nodes as possible"}
	switch {
	case len(b.IDs) > 0:
		said[0] = "NUMA nodes " + topology.FormatList(b.IDs)
	case b.Count > 0:
		said[0] = fmt.Sprintf("%d NUMA nodes", b.Count)
	}
	for _, o := range []struct {
		set  bool
		text string
	}{
		{b.Exclusive, "exclusive"}, {b.Even, "the same number of CPUs from each"}, {b.WholeCores, "whole cores"},
		{b.BySocket, "no more sockets than needed"}, {b.ExcludeOthers, "without pods of other classes"},
	} {
		if o.set {
			said = append(said, o.text)
		}
	}
	return strings.Join(said, ", ")
}

// Pod is the intent of a pod: all requests of its labels and annotations.
type Pod struct {
	Class Sourced[Class]
	Name  string // the dialect's own name of the class, for example LSR
	QoS   QoS    // from the pod's cgroup path, which always has one
	// CPUs are kernel ids of CPUs that a scheduler assigned to the pod.
	CPUs Sourced[[]int]
	// Nodes are the NUMA nodes that a scheduler chose for the pod's CPUs.
	Nodes Sourced[[]int]
	// Pool is the name of the shared or system pool that the pod asks for; "" for
	// none.
	Pool Sourced[string]
	// NUMA binds the pod's CPUs and memory to NUMA nodes.
	NUMA  Sourced[NUMABinding]
	Cores Sourced[CoreUse]
	// CoreKind is the kind of cores that the pod prefers for its own CPUs. Isolated reports
	// whether it prefers isolated CPUs (isolcpus).
	CoreKind Sourced[topology.CoreKind]
	Isolated Sourced[bool]
	Batch    Sourced[map[string]Batch] // by container name
	GPU      Sourced[GPU]
	// UnsetQuota reports whether the agent lifts the CPU quota if the pod owns its CPUs.
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
	CoreSched Sourced[CoreSchedAsk]
	// Preemptable reports whether the pod yields CPU and memory to others; false requests memory
	// protection.
	Preemptable Sourced[bool]
	// Unprotected names the rule that refuses memory protection to the pod; "" if no rule does.
	Unprotected string
	// NoHooks names the rule that refuses a pod the OCI hooks whose condition is an
	// annotation; "" if none does.
	NoHooks string
	// NoPluginValues names the rule that refuses a pod variables, annotations, mounts and devices
	// of resource plugins.
	NoPluginValues string
	// Burst is the CPU time in µs that a container may use above its quota in one period, if it
	// used less in earlier ones.
	Burst Sourced[int64]
	// CacheLevel is one of CacheLevels.
	CacheLevel Sourced[string]
	// CPUEnv are environment variables with the CPUs of containers.
	CPUEnv Sourced[CPUVariables]
	// Ulimits are limits of processes, IOPriority and Scheduler priorities, and
	// MemPolicy the memory policy, that containers start with; Sysctls are parameters
	// of their namespaces.
	Ulimits    Sourced[PerContainer[[]lifecycle.Rlimit]]
	IOPriority Sourced[PerContainer[lifecycle.IOPriority]]
	Scheduler  Sourced[PerContainer[lifecycle.Scheduler]]
	MemPolicy  Sourced[PerContainer[lifecycle.MemoryPolicy]]
	Sysctls    Sourced[PerContainer[map[string]string]]
	// DeviceNodes are devices of the host by their numbers, Mounts files and directories
	// of the host, CDIDevices fully qualified
	// names, and NetDevices interfaces of the host that move into containers.
	DeviceNodes Sourced[PerContainer[[]lifecycle.Device]]
	Mounts      Sourced[PerContainer[[]HostMount]]
	CDIDevices  Sourced[PerContainer[[]string]]
	NetDevices  Sourced[PerContainer[[]NetDevice]]
	// PodInterfaces are interfaces of the host that move into the pod with the first of its
	// containers.
	PodInterfaces Sourced[[]NetDevice]
	// WritableCgroups lets containers write their own cgroups. ClosID, Schemata and
	// Monitoring are the intelRdt of the OCI spec.
	WritableCgroups Sourced[PerContainer[bool]]
	ClosID          Sourced[PerContainer[string]]
	Schemata        Sourced[PerContainer[[]string]]
	Monitoring      Sourced[PerContainer[bool]]
	// Balloon is the type of a container's balloon, by name. HideThreads lets it run on one
	// thread of each core of the balloon, or on all. PreserveCPU and PreserveMemory keep what
	// the runtime requested. MemoryKinds are the kinds of its memory nodes.
	Balloon                     Sourced[PerContainer[string]]
	HideThreads                 Sourced[PerContainer[bool]]
	PreserveCPU, PreserveMemory Sourced[PerContainer[bool]]
	MemoryKinds                 Sourced[PerContainer[[]topology.MemoryKind]]
	// SchedulingClass is a container's scheduling class, by name.
	SchedulingClass Sourced[PerContainer[string]]
	// PreferShared, PreferIsolated and PreferReserved say which CPUs suit a container, and
	// Unlimited the part of the node for one without CPU limit. Affinity and AntiAffinity list
	// the containers of the pod that it should be near, or far from.
	PreferShared, PreferIsolated, PreferReserved Sourced[PerContainer[bool]]
	Unlimited                                    Sourced[PerContainer[string]]
	Affinity, AntiAffinity                       Sourced[map[string][]string]
	// OnlyGranted names the rule by which containers get only devices that Kubernetes granted
	// them; "" if another rule decides.
	OnlyGranted string
	// LibraryGranted names the rule by which containers get HAMi-core only if Kubernetes
	// granted them their GPU; "" if another rule decides.
	LibraryGranted string
	Problems       []lifecycle.Problem
	// problems collects problems while the pod is read.
	problems lifecycle.ProblemList
}

// Malformed returns the problems for which strict mode refuses a pod.
func (p *Pod) Malformed() []lifecycle.Problem {
	return slices.DeleteFunc(slices.Clone(p.Problems), func(q lifecycle.Problem) bool { return q.Warning || q.Unserved })
}

// dialect is one system whose keys pods carry.
type dialect struct {
	name  string
	title string // the heading of its keys in docs/keys.md; "" if it has no keys
	// read reads the system's labels and annotations into an intent; nil if no key is read.
	read func(*texts, *lifecycle.PodSpec, *Pod)
	keys func() []Key // nil for none
}

// dialects lists every dialect, most trusted first. A new one is one file and one line here.
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

// KeySystems returns the systems that have keys, with their titles.
func KeySystems() [][2]string {
	var all [][2]string
	for _, d := range dialects() {
		if d.keys != nil {
			all = append(all, [2]string{d.name, d.title})
		}
	}
	return all
}

// Read reads a pod in the given dialects, most trusted first. An earlier dialect has priority;
// a later one that disagrees is reported. spec is the pod's spec, nil if no source has it. It
// assumes that the node serves every request.
func Read(pod *lifecycle.Pod, spec *lifecycle.PodSpec, order []string) *Pod {
	return (*Serving)(nil).Read(pod, spec, order)
}

// Read reads a pod like the function Read. It leaves out and reports requests that this node
// does not serve; a nil Serving serves everything.
func (s *Serving) Read(pod *lifecycle.Pod, spec *lifecycle.PodSpec, order []string) *Pod {
	out, t := &Pod{}, textsOf(pod, spec)
	for _, name := range order {
		for _, d := range dialects() {
			if d.name == name && d.read != nil {
				var said Pod
				d.read(t, spec, &said)
				s.apply(&said)
				out.merge(&said)
			}
		}
	}
	out.QoS = qosOf(t.parent, spec) // for all dialects
	out.problems.Add(t.problems...)
	if text, forged := forgesRecord(pod); forged {
		out.refuse(RecordKey, text, "records are read only from containers, where the agent wrote them")
	}
	out.reportUnread(t, order)
	out.Problems, out.problems = out.problems.List(), lifecycle.ProblemList{}
	return out
}

func (p *Pod) merge(o *Pod) {
	p.problems.Add(o.problems.List()...)
	p.QoS = max(p.QoS, o.QoS)
	switch {
	case !o.Class.IsSet():
	case !p.Class.IsSet():
		p.Class, p.Name = o.Class, o.Name
	case p.Class.V != o.Class.V:
		p.problems.Add(lifecycle.Problem{
			Key: o.Class.Key, Value: o.Name,
			Reason: fmt.Sprintf("disagrees with %s, which is %s and has priority", p.Class.Key, p.Class.V),
		})
		o.Preemptable = Sourced[bool]{} // the key already has a problem, because it is also the key of the class that lost
	}
	takeFirst(&p.Cores, o.Cores)
	for _, r := range requests {
		if r.take != nil {
			r.take(p, o)
		}
	}
}

func takeFirst[T any](have *Sourced[T], o Sourced[T]) {
	if !have.IsSet() {
		*have = o
	}
}

// problem adds a malformed key to the intent.
func (p *Pod) problem(key, value, format string, args ...any) {
	p.add(lifecycle.Problem{Key: key}, value, format, args)
}

// warn adds a warning: the request is served nevertheless.
func (p *Pod) warn(key, value, format string, args ...any) {
	p.add(lifecycle.Problem{Key: key, Warning: true}, value, format, args)
}

// refuse adds a well-formed request that is not granted.
func (p *Pod) refuse(key, value, format string, args ...any) {
	p.add(lifecycle.Problem{Key: key, Refused: true}, value, format, args)
}

// add adds a problem. If there are too many, it only counts the problem, and formats nothing.
func (p *Pod) add(q lifecycle.Problem, value, format string, args []any) {
	if !p.problems.Full(q) {
		q.Value, q.Reason = printable(value), fmt.Sprintf(format, args...)
	}
	p.problems.Add(q)
}

// RecordKey is the annotation that has a container's record. A pod must not have
// it.
const RecordKey = "trimtab.io/record"

// Printable shortens foreign text and removes invisible characters.
func Printable(s string) string { return printable(s) }

// printable shortens foreign text and removes invisible characters (control characters,
// bidirectional marks, odd spaces), so that it can be shown in a log or on a terminal.
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
