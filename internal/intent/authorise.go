package intent

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Kind names one thing a pod can ask for, as authorisation rules do.
type Kind string

// The kinds of intent. Mounts are asked for by nothing yet: the name is kept, and
// refused where no rule allows it.
const (
	ClassSystem    Kind = "class/system"
	ClassDedicated Kind = "class/dedicated"
	ClassShared    Kind = "class/shared"
	ClassReclaimed Kind = "class/reclaimed"
	AssignedCPUs   Kind = "assigned-cpus"
	NUMANodes      Kind = "numa-nodes"
	NUMAExclusive  Kind = "numa-exclusive"
	CPUPreference  Kind = "cpu-preference"
	NamedPool      Kind = "pool"
	BatchResources Kind = "batch"
	GPUEnv         Kind = "gpu"
	GPULibrary     Kind = "gpu-library"
	CPUQoSKind     Kind = "cpu-qos"
	Quota          Kind = "quota"
	HugepageLimits Kind = "hugepages"
	DiskLimits     Kind = "disk-limits"
	BlockIO        Kind = "block-io-class"
	OOMScore       Kind = "oom-score"
	RDT            Kind = "rdt"
	CoreSched      Kind = "core-sched"
	Preemption     Kind = "preemptable"
	MemoryKept     Kind = "memory-protection"
	BurstKind      Kind = "cpu-burst"
	CacheLimit     Kind = "cache-limit"
	CPUEnvKind     Kind = "cpu-env"
	Devices        Kind = "devices"
	Mounts         Kind = "mounts"
)

// Names a rule may use for several kinds at once.
const (
	anyKind  Kind = "*"
	anyClass Kind = "class"
)

// Decision is what a rule says.
type Decision string

// The decisions. Cap lets an intent pass as far as it stays within what
// Kubernetes itself gave the pod.
const (
	Allow  Decision = "allow"
	Cap    Decision = "cap"
	Refuse Decision = "refuse"
)

// Decisions returns the names of all decisions.
func Decisions() []string { return []string{string(Allow), string(Cap), string(Refuse)} }

// Rule says what pods of some namespaces may ask for.
type Rule struct {
	Kinds      []Kind
	Namespaces []string // names or patterns of path.Match
	Decision   Decision
	// MostCPUs bounds assigned CPUs further under Cap; 0 does not.
	MostCPUs int
	// Name says where the rule stands, for people.
	Name string
	// granted: a refusal leaves what Kubernetes itself gave the container. That
	// is measured for each container, by hooks; an operator's refusal is final.
	granted bool
}

// Rules are the rules of the configuration. The first that matches wins; where
// none does, the safe defaults hold. So no rules at all are safe.
type Rules []Rule

// Default is one row of the table that holds where no rule matches.
type Default struct {
	Kind       Kind
	Namespaces string // "*" for all; elsewhere the kind is refused
	Decision   Decision
	Why        string
	// Cost is what others lose where a pod asks for it, is granted it, and requests
	// neither CPU nor memory. The table in docs/authorisation.md has it.
	Cost string
}

// Defaults returns the table that holds where no rule matches: every kind has
// a row.
func Defaults() []Default { return slices.Clone(defaults) }

var defaults = []Default{
	{ClassSystem, "kube-system", Allow, "the system pool is the cluster's own; elsewhere refused",
		"it shares the system pool with the cluster's own pods"},
	{ClassDedicated, "*", Allow, "by itself it gives the shared pool; CPUs are a kind of their own",
		"nothing: it owns no CPU and shares the default pool by its CPU shares"},
	{ClassShared, "*", Allow, "it gives no more than a pod without a class has",
		"nothing: it shares the default pool by its CPU shares; its group identity is that of its class"},
	{ClassReclaimed, "*", Allow, "it gives less than a pod without a class has",
		"nothing: it shares the reclaimed pool, and CPUs that LSR pods lend, by its CPU shares"},
	{AssignedCPUs, "*", Cap, "at most what the scheduler charged the pod for",
		"nothing: it owns none"},
	{NUMANodes, "*", Allow, "it narrows a pool",
		"nothing: the pool of a NUMA node takes CPUs from others for whole CPUs that its pods request, and memory counts as far as it is requested"},
	{NUMAExclusive, "*", Refuse, "whole NUMA nodes are more than the scheduler charged the pod for",
		"the NUMA nodes that it has alone: a rule that allows it gives them away"},
	{CPUPreference, "*", Allow, "which CPUs it owns, and not how many; what others own stays theirs",
		"nothing: it owns none"},
	{NamedPool, "*", Allow, "a pool is as large as its pods' requests",
		"nothing: a pool that requests less than a CPU has the CPUs of the default pool"},
	{BatchResources, "*", Cap, "only pods that are BestEffort to Kubernetes: the limits of others are not lifted",
		"CPU time of other BestEffort pods: among these its CPU shares are what the annotation says"},
	{GPUEnv, "*", Allow, "an environment variable the pod's author could write as well",
		"nothing of CPU or memory: which GPUs it sees is not kept from others"},
	{GPULibrary, "*", Refuse, "a file of the host, and a directory that others write to; containers that were granted the GPU have it all the same",
		"nothing of CPU or memory: it can hold the lock of containers that share a GPU, and have these wait"},
	{CPUQoSKind, "*", Allow, "a group identity within those of the classes; only LS pods are heeded",
		"CPU time of pods with a lower group identity, as its class LS by itself"},
	{Quota, "*", Allow, "it is heeded only where the pod owns its CPUs",
		"nothing: it owns none"},
	{HugepageLimits, "*", Cap, "at most what Kubernetes gave the container",
		"nothing: what Kubernetes gave it is nothing"},
	{DiskLimits, "*", Allow, "they take from the pod alone",
		"nothing"},
	{BlockIO, "*", Refuse, "a class of the runtime's may give more of the disks than others have",
		"time of the disks, as the runtime's class says"},
	{OOMScore, "*", Refuse, "it decides whom the kernel kills first",
		"their life before its own when memory is short"},
	{RDT, "*", Refuse, "cache and memory bandwidth are the node's",
		"cache and memory bandwidth"},
	{CoreSched, "*", Refuse, "a cookie keeps others off a core",
		"the other threads of the cores that it runs on, for as long as it runs there"},
	{Preemption, "*", Allow, "it takes from the pod alone",
		"nothing"},
	{MemoryKept, "*", Refuse, "memory that is kept for it (hooks.preemption.memoryLow, memoryMin) is kept from others",
		"the memory that is kept for it"},
	{BurstKind, "*", Allow, "within the pod's own quota, and only what it left of it before",
		"nothing beyond its CPU limit over time; in a burst it shares by its CPU shares"},
	{CacheLimit, "*", Allow, "it takes from the pod alone, in one of three groups",
		"nothing: the three groups are the node's"},
	{CPUEnvKind, "*", Allow, "environment variables the pod's author could write as well",
		"nothing"},
	{Devices, "*", Refuse, "host devices are the node's; what Kubernetes granted the container is handed over all the same",
		"the devices that it is handed"},
	{Mounts, "*", Refuse, "host paths are the node's",
		"what the host paths hold"},
}

// HasCap reports whether a kind can be capped.
func HasCap(k Kind) bool { return slices.Contains(Capped(), string(k)) }

// Capped returns the kinds that can be capped.
func Capped() []string {
	return []string{string(AssignedCPUs), string(BatchResources), string(HugepageLimits)}
}

// KindNames returns every name a rule may use for kinds.
func KindNames() []string {
	names := []string{string(anyKind), string(anyClass)}
	for _, d := range defaults {
		names = append(names, string(d.Kind))
	}
	return names
}

// For returns the rule that holds for a kind of intent in a namespace.
func (r Rules) For(kind Kind, namespace string) Rule {
	for _, rule := range r {
		if rule.names(kind) && rule.matches(namespace) {
			return rule
		}
	}
	for _, d := range defaults {
		if d.Kind == kind && MatchNamespace(d.Namespaces, namespace) {
			return Rule{Decision: d.Decision, Name: "default", granted: kind == Devices || kind == GPULibrary}
		}
	}
	return Rule{Decision: Refuse, Name: "default"}
}

func (r *Rule) names(kind Kind) bool {
	return slices.ContainsFunc(r.Kinds, func(k Kind) bool {
		return k == kind || k == anyKind || k == anyClass && strings.HasPrefix(string(kind), string(anyClass)+"/")
	})
}

func (r *Rule) matches(namespace string) bool {
	return slices.ContainsFunc(r.Namespaces, func(p string) bool { return MatchNamespace(p, namespace) })
}

// MatchNamespace reports whether a namespace's name fits a pattern. Only the
// name counts: labels of a pod are written by whoever writes the pod. A slash,
// which no namespace of Kubernetes has, is a letter like any other, so that no
// name slips past "*".
func MatchNamespace(pattern, namespace string) bool {
	ok, err := path.Match(pattern, strings.ReplaceAll(namespace, "/", "\x00"))
	return ok && err == nil
}

// subject is how one kind of intent is found in a pod and taken out of it.
type subject struct {
	kind  Kind
	key   func(*Pod) string // "" where it was not asked for
	value func(*Pod) string
	drop  func(*Pod)
}

// subjects lists the kinds that something asks for. A new kind is one line.
func subjects(p *Pod) []subject {
	class := Kind("class/" + p.Class.V.String())
	return []subject{
		{
			class, func(p *Pod) string { return p.Class.Key }, func(p *Pod) string { return p.Name },
			func(p *Pod) { p.Class, p.Name = Sourced[Class]{}, "" },
		},
		{AssignedCPUs, func(p *Pod) string { return p.CPUs.Key }, func(p *Pod) string { return topology.FormatList(p.CPUs.V) }, func(p *Pod) { p.CPUs = Sourced[[]int]{} }},
		{
			NUMANodes, func(p *Pod) string { return p.Nodes.Key }, func(p *Pod) string { return fmt.Sprint(p.Nodes.V) },
			func(p *Pod) { p.Nodes = Sourced[[]int]{} },
		},
		{
			NUMANodes, func(p *Pod) string { return p.NUMA.Key }, func(p *Pod) string { return fmt.Sprintf("%+v", p.NUMA.V) },
			func(p *Pod) { p.NUMA = Sourced[NUMABinding]{} },
		},
		{
			NUMAExclusive, exclusiveKey, func(p *Pod) string { return fmt.Sprintf("%+v", p.NUMA.V) },
			func(p *Pod) { p.NUMA.V.Exclusive, p.NUMA.V.Alone = false, false },
		},
		{CPUPreference, func(p *Pod) string { return p.CoreKind.Key }, func(p *Pod) string { return p.CoreKind.V.String() }, func(p *Pod) { p.CoreKind = Sourced[topology.CoreKind]{} }},
		{CPUPreference, func(p *Pod) string { return p.Isolated.Key }, func(p *Pod) string { return fmt.Sprint(p.Isolated.V) }, func(p *Pod) { p.Isolated = Sourced[bool]{} }},
		{NamedPool, func(p *Pod) string { return p.Pool.Key }, func(p *Pod) string { return p.Pool.V }, func(p *Pod) { p.Pool = Sourced[string]{} }},
		{
			BatchResources, func(p *Pod) string { return p.Batch.Key },
			func(p *Pod) string { return strings.Join(sortedKeys(p.Batch.V), ",") },
			func(p *Pod) { p.Batch = Sourced[map[string]Batch]{} },
		},
		{GPUEnv, func(p *Pod) string { return p.GPU.Key }, gpuList, func(p *Pod) { p.GPU = Sourced[GPU]{} }},
		{Devices, func(p *Pod) string { return p.RDMA.Key }, func(p *Pod) string { return strings.Join(p.RDMA.V, ",") }, func(p *Pod) { p.RDMA = Sourced[[]string]{} }},
		{OOMScore, func(p *Pod) string { return p.OOMScore.Key }, func(p *Pod) string { return fmt.Sprint(p.OOMScore.V) }, func(p *Pod) { p.OOMScore = Sourced[int64]{} }},
		{
			OOMScore, func(p *Pod) string { return p.OOMScores.Key }, func(p *Pod) string { return strings.Join(sortedKeys(p.OOMScores.V), ",") },
			func(p *Pod) { p.OOMScores = Sourced[map[string]int64]{} },
		},
		{CPUQoSKind, func(p *Pod) string { return p.CPUQoS.Key }, func(p *Pod) string { return fmt.Sprintf("%+v", p.CPUQoS.V) }, func(p *Pod) { p.CPUQoS = Sourced[CPUQoS]{} }},
		{Quota, func(p *Pod) string { return p.UnsetQuota.Key }, func(p *Pod) string { return fmt.Sprint(p.UnsetQuota.V) }, func(p *Pod) { p.UnsetQuota = Sourced[bool]{} }},
		{
			HugepageLimits, func(p *Pod) string { return p.Hugepages.Key },
			func(p *Pod) string { return strings.Join(sortedKeys(p.Hugepages.V.Limits), ",") },
			func(p *Pod) { p.Hugepages = Sourced[Hugepages]{} },
		},
		{DiskLimits, func(p *Pod) string { return p.Disks.Key }, func(p *Pod) string { return fmt.Sprintf("%+v", p.Disks.V) }, func(p *Pod) { p.Disks = Sourced[[]DiskLimit]{} }},
		{BlockIO, func(p *Pod) string { return p.BlockIOClass.Key }, func(p *Pod) string { return p.BlockIOClass.V }, func(p *Pod) { p.BlockIOClass = Sourced[string]{} }},
		{RDT, func(p *Pod) string { return p.RDT.Key }, func(p *Pod) string { return string(p.RDT.V) }, func(p *Pod) { p.RDT = Sourced[RDTShares]{} }},
		{RDT, func(p *Pod) string { return p.RDTClass.Key }, func(p *Pod) string { return p.RDTClass.V }, func(p *Pod) { p.RDTClass = Sourced[string]{} }},
		{
			CoreSched, func(p *Pod) string { return p.CoreSched.Key }, func(p *Pod) string { return fmt.Sprintf("%+v", p.CoreSched.V) },
			func(p *Pod) { p.CoreSched = Sourced[CoreSchedAsk]{} },
		},
		{Preemption, preemptableKey, func(*Pod) string { return "true" }, func(p *Pod) { p.Preemptable = Sourced[bool]{} }},
		{BurstKind, func(p *Pod) string { return p.Burst.Key }, func(p *Pod) string { return fmt.Sprint(p.Burst.V) }, func(p *Pod) { p.Burst = Sourced[int64]{} }},
		{CacheLimit, func(p *Pod) string { return p.CacheLevel.Key }, func(p *Pod) string { return p.CacheLevel.V }, func(p *Pod) { p.CacheLevel = Sourced[string]{} }},
		{CPUEnvKind, func(p *Pod) string { return p.CPUEnv.Key }, func(p *Pod) string { return p.CPUEnv.V.String() }, func(p *Pod) { p.CPUEnv = Sourced[CPUVariables]{} }},
		{GPULibrary, libraryKey, gpuList, func(p *Pod) { p.GPU.V.Shared = nil }},
	}
}

func gpuList(p *Pod) string { return fmt.Sprint("minors ", p.GPU.V.Minors) }

// exclusiveKey names what keeps others off NUMA nodes.
func exclusiveKey(p *Pod) string {
	if !p.NUMA.V.Exclusive && !p.NUMA.V.Alone {
		return ""
	}
	return p.NUMA.Key
}

// preemptableKey names what makes a pod yield.
func preemptableKey(p *Pod) string {
	if !p.Preemptable.V {
		return ""
	}
	return p.Preemptable.Key
}

// libraryKey names what asks for HAMi-core: a part of a GPU does.
func libraryKey(p *Pod) string {
	if p.GPU.V.Shared == nil {
		return ""
	}
	return KoordGPUIsolation
}

// Authorise returns a pod's intent without what its namespace may not ask for.
// Each refusal is a problem; nothing of it is partly granted. The number of
// assigned CPUs is measured for each container, by CPUs.
func (r Rules) Authorise(p *Pod, namespace string) *Pod {
	out := *p
	out.Problems = slices.Clone(p.Problems)
	for _, s := range subjects(p) {
		key := s.key(&out)
		if key == "" {
			continue
		}
		rule := r.For(s.kind, namespace)
		var why string
		switch {
		case rule.Decision == Refuse && rule.granted:
			continue
		case rule.Decision == Refuse:
			why = "pods of namespace " + printable(namespace) + " may not ask for it"
		case rule.Decision == Cap && s.kind == BatchResources && p.QoS != BestEffort:
			why = "the pod is " + p.QoS.String() + " to Kubernetes, whose limits it would lift; batch resources are for BestEffort pods"
		default:
			continue
		}
		value := s.value(&out)
		s.drop(&out)
		out.Problems = append(out.Problems, lifecycle.Problem{
			Key: key, Value: printable(value), Refused: true, Rule: rule.Name,
			Reason: fmt.Sprintf("%s: %s (authorisation: %s)", s.kind, why, rule.Name),
		})
	}
	if rule := r.For(Devices, namespace); rule.Decision == Refuse && (out.GPU.Said() || out.RDMA.Said()) {
		if rule.granted {
			out.OnlyGranted = rule.Name
		} else {
			out.GPU.V.NodesRefused = rule.Name
		}
	}
	if rule := r.For(GPULibrary, namespace); rule.Decision == Refuse && rule.granted && out.GPU.V.Shared != nil {
		out.LibraryGranted = rule.Name
	}
	if rule := r.For(MemoryKept, namespace); rule.Decision == Refuse {
		out.Unprotected = rule.Name
	}
	if rule := r.For(HugepageLimits, namespace); out.Hugepages.Said() && rule.Decision == Cap {
		out.Hugepages.V.Capped = rule.Name
	}
	out.Problems = lifecycle.Bound(out.Problems, lifecycle.MaxProblems)
	return &out
}

// Refusal is an authorisation rule's no, in a sentence for people.
type Refusal struct{ Reason, Rule string }

// Error returns the sentence.
func (r *Refusal) Error() string { return r.Reason }

// ValidPattern reports whether MatchNamespace understands a pattern.
func ValidPattern(pattern string) bool {
	_, err := path.Match(pattern, "")
	return err == nil
}
