package balloons

// PolicyOptions configure the policy.
type PolicyOptions struct {
	// ReservedPoolNamespaces are names or patterns of namespaces whose containers get the
	// balloon of type reserved. Its first CPUs are those of pools.reserved.
	ReservedPoolNamespaces []string `json:"reservedPoolNamespaces" default:"kube-system" check:"balloon namespaces"`
	// AllocatorTopologyBalancing puts new balloons into the emptiest part of the node. Off,
	// they are put together, so that large parts stay free.
	AllocatorTopologyBalancing bool `json:"allocatorTopologyBalancing"`
	// PreferSpreadOnPhysicalCores takes one thread of as many cores as possible before a
	// second one of any.
	PreferSpreadOnPhysicalCores bool `json:"preferSpreadOnPhysicalCores"`
	// PinCPU lets containers run on the CPUs of their balloon alone. Off, they run on all CPUs
	// that no container owns, and balloons only count requests.
	PinCPU bool `json:"pinCPU" default:"true"`
	// PinMemory binds containers to the memory nodes of their balloon's CPUs when they are
	// created.
	PinMemory bool `json:"pinMemory" default:"true"`
	// Preserve says which containers no balloon takes.
	Preserve PreserveOptions `json:"preserve"`
	// SchedulingClasses are how processes are scheduled; types name them.
	SchedulingClasses []SchedulingOptions `json:"schedulingClasses"`
	// BalloonTypes are the types, in the order in which containers are matched. The types
	// reserved (first) and default (last) exist in any case.
	BalloonTypes []TypeOptions `json:"balloonTypes"`
}

// PreserveOptions select containers that no balloon takes.
type PreserveOptions struct {
	// MatchExpressions select them: one that matches is enough.
	MatchExpressions []ExpressionOptions `json:"matchExpressions"`
}

// TypeOptions are one type of balloons.
type TypeOptions struct {
	// Name is the name of the type.
	Name string `json:"name" check:"balloon type"`
	// Namespaces are names or patterns of namespaces whose containers it takes.
	Namespaces []string `json:"namespaces" check:"balloon namespaces"`
	// MatchExpressions select the containers that it takes: one that matches is enough.
	MatchExpressions []ExpressionOptions `json:"matchExpressions"`
	// GroupBy is a text with keys of expressions, such as "${pod/labels/app}". Containers for
	// which it gives the same text are put together if they fit.
	GroupBy string `json:"groupBy" check:"text"`
	// MinCPUs is how many CPUs a balloon has at least.
	MinCPUs int `json:"minCPUs" check:"CPUs or 0"`
	// MaxCPUs is how many it has at most; 0 for no limit.
	MaxCPUs int `json:"maxCPUs" check:"CPUs or 0"`
	// MinBalloons is how many balloons exist also without containers.
	MinBalloons int `json:"minBalloons" check:"CPUs or 0"`
	// MaxBalloons is how many exist at most; 0 for no limit.
	MaxBalloons int `json:"maxBalloons" check:"CPUs or 0"`
	// AllocatorPriority orders types that get CPUs at the same moment.
	AllocatorPriority string `json:"allocatorPriority" default:"high" check:"high|normal|low|none"`
	// PreferNewBalloons makes a new balloon before containers share one.
	PreferNewBalloons bool `json:"preferNewBalloons"`
	// PreferPerNamespaceBalloon puts containers of one namespace together, and makes a new
	// balloon for another namespace.
	PreferPerNamespaceBalloon bool `json:"preferPerNamespaceBalloon"`
	// PreferSpreadingPods does not put containers of one pod together.
	PreferSpreadingPods bool `json:"preferSpreadingPods"`
	// PreferSpreadOnPhysicalCores is the policy's key of this name, for this type.
	PreferSpreadOnPhysicalCores bool `json:"preferSpreadOnPhysicalCores"`
	// AllocatorTopologyBalancing is the policy's key of this name, for this type.
	AllocatorTopologyBalancing bool `json:"allocatorTopologyBalancing"`
	// PinMemory precedes the policy's key of this name: always, never, or empty for the
	// policy's.
	PinMemory string `json:"pinMemory" check:"|always|never"`
	// MemoryTypes are the kinds of memory nodes to which containers are bound: the nearest node
	// of each kind. Empty is DRAM.
	MemoryTypes []string `json:"memoryTypes" check:"memory types"`
	// Components make each balloon of the type a composite: it consists of a balloon of each
	// listed type, which get equal parts of the CPUs.
	Components []ComponentOptions `json:"components"`
	// ComponentCreation is "all", or "balance-balloons": then a composite has one component, of
	// the type that has the fewest balloons.
	ComponentCreation string `json:"componentCreation" default:"all" check:"all|balance-balloons"`
	// PreferCloseToDevices are paths below /sys/devices of NUMA nodes, CPUs, caches of CPUs and
	// PCI devices, the most important first. Balloons get CPUs near them; those of types that
	// do not list them get others.
	PreferCloseToDevices []string `json:"preferCloseToDevices" check:"sysfs devices"`
	// PreferIsolCPUs gives balloons isolated CPUs (isolcpus). Those of other types get none.
	PreferIsolCPUs bool `json:"preferIsolCpus"`
	// PreferCoreType is the kind of cores that balloons get: efficient, performance, or empty
	// for any.
	PreferCoreType string `json:"preferCoreType" check:"|efficient|performance"`
	// HideHyperthreads lets containers run on one thread of each core. The balloon has the
	// others, too.
	HideHyperthreads bool `json:"hideHyperthreads"`
	// ShareIdleCPUsInSame lets containers use CPUs of no balloon that are in the same part of
	// the node as the balloon's; empty for none.
	ShareIdleCPUsInSame string `json:"shareIdleCPUsInSame" check:"|system|package|die|numa|l2cache|core|thread"`
	// SchedulingClass is the name of a class of schedulingClasses, which the processes of
	// containers start in; empty for none. An annotation for one container precedes it.
	SchedulingClass string `json:"schedulingClass" check:"class"`
}

// ComponentOptions are one component of composite balloons.
type ComponentOptions struct {
	// BalloonType is the name of a type.
	BalloonType string `json:"balloonType" check:"balloon type"`
}

// SchedulingOptions are how the kernel schedules the processes of containers in balloons of
// the types that name the class.
type SchedulingOptions struct {
	// Name is the name of the class.
	Name string `json:"name" check:"class"`
	// Policy is the scheduling policy: SCHED_BATCH is batch. Empty is other if nice is set, or else
	// none, which leaves the policy as it is.
	Policy string `json:"policy" check:"|none|other|fifo|rr|batch|idle|deadline"`
	// Priority is that of fifo and rr.
	Priority int `json:"priority" check:"0..99"`
	// Flags are those of the policy: SCHED_FLAG_RESET_ON_FORK is reset-on-fork.
	Flags []string `json:"flags" check:"scheduling flags"`
	// Nice is the nice value of other, batch and idle.
	Nice int `json:"nice" check:"-20..19"`
	// Runtime is that of deadline, in µs: the CPU time within each deadline.
	Runtime int `json:"runtime" check:"0..1000000000"`
	// Deadline is that of deadline, in µs.
	Deadline int `json:"deadline" check:"0..1000000000"`
	// Period is that of deadline, in µs; 0 is the deadline.
	Period int `json:"period" check:"0..1000000000"`
	// IOClass is the I/O priority's class: IOPRIO_CLASS_BE is be. Empty leaves it as it is.
	IOClass string `json:"ioClass" check:"|none|rt|be|idle"`
	// IOPriority is the level within rt and be, 0 before all others.
	IOPriority int `json:"ioPriority" check:"0..7"`
}

// ExpressionOptions are a condition over a container.
type ExpressionOptions struct {
	// Key is name, namespace, qosclass, or with pod/ in front: name, namespace, qosclass, uid,
	// id, labels/KEY. A colon in front joins several: ":pod/namespace:name", joined by colons.
	Key string `json:"key" check:"text"`
	// Operator compares the key with the values.
	Operator string `json:"operator" check:"Equals|NotEqual|In|NotIn|Exists|NotExists|AlwaysTrue|Matches|MatchesNot|MatchesAny|MatchesNone"`
	// Values are what it is compared with; patterns for Matches and the like.
	Values []string `json:"values" check:"texts"`
}
