package balloons

import "github.com/trimtab/trimtab/internal/placement/class"

// PolicyOptions configure the policy.
type PolicyOptions struct {
	// ReservedPoolNamespaces are names or patterns of namespaces whose containers get the
	// balloon of type reserved. This balloon gets the CPUs of pools.reserved before other CPUs.
	ReservedPoolNamespaces []string `json:"reservedPoolNamespaces" default:"kube-system" check:"balloon namespaces"`
	// AllocatorTopologyBalancing puts new balloons into the emptiest part of the node. If it is off, balloons
	// are placed close together, so that large parts of the node stay free.
	AllocatorTopologyBalancing bool `json:"allocatorTopologyBalancing"`
	// PreferSpreadOnPhysicalCores takes one thread of as many cores as possible before it takes a second
	// thread of any core.
	PreferSpreadOnPhysicalCores bool `json:"preferSpreadOnPhysicalCores"`
	// PinCPU lets containers run only on the CPUs of their balloon. If it is off, containers run on all CPUs that
	// no container owns, and balloons only count requests.
	PinCPU bool `json:"pinCPU" default:"true"`
	// PinMemory binds a container, when it is created, to the memory nodes of its balloon's
	// CPUs.
	PinMemory bool `json:"pinMemory" default:"true"`
	// Preserve selects containers that are kept out of balloons.
	Preserve PreserveOptions `json:"preserve"`
	// SchedulingClasses say how the kernel schedules processes. Balloon types refer to these classes by name.
	SchedulingClasses []class.SchedulingOptions `json:"schedulingClasses"`
	// LoadClasses say what containers use heavily: cores, or L2 caches. Balloon types refer to these classes by name.
	LoadClasses []LoadOptions `json:"loadClasses"`
	// CPUClasses are settings of the kernel for CPUs, such as frequencies. Balloon types refer to these classes by
	// name. Balloon types that name no class use the class with the name "default", if there is one.
	CPUClasses []CPUClassOptions `json:"cpuClasses"`
	// IdleCPUClass is the name of the CPU class of idle CPUs, which are in no balloon, and which no container owns.
	// Empty means the class with the name "default", if there is one.
	IdleCPUClass string `json:"idleCPUClass" check:"class"`
	// BalloonTypes are the types. A container gets the first type that matches it. The types reserved (first)
	// and default (last) always exist.
	BalloonTypes []TypeOptions `json:"balloonTypes"`
}

// PreserveOptions select containers that are kept out of balloons.
type PreserveOptions struct {
	// MatchExpressions select the containers. One expression that matches is enough.
	MatchExpressions []ExpressionOptions `json:"matchExpressions"`
}

// TypeOptions are one type of balloons.
type TypeOptions struct {
	// Name is the name of the type.
	Name string `json:"name" check:"balloon type"`
	// Namespaces are names or patterns of namespaces whose containers the type takes.
	Namespaces []string `json:"namespaces" check:"balloon namespaces"`
	// MatchExpressions select containers that the type takes. One expression that matches is enough.
	MatchExpressions []ExpressionOptions `json:"matchExpressions"`
	// GroupBy is a template with keys of expressions, such as "${pod/labels/app}". Containers for which the template
	// gives the same text are placed in one balloon if they fit.
	GroupBy string `json:"groupBy" check:"text"`
	// MinCPUs is the smallest number of CPUs of a balloon.
	MinCPUs int `json:"minCPUs" check:"CPUs or 0"`
	// MaxCPUs is the largest number of CPUs of a balloon; 0 for no limit.
	MaxCPUs int `json:"maxCPUs" check:"CPUs or 0"`
	// MinBalloons is the number of balloons that exist even without containers.
	MinBalloons int `json:"minBalloons" check:"CPUs or 0"`
	// MaxBalloons is the largest number of balloons of the type; 0 for no limit.
	MaxBalloons int `json:"maxBalloons" check:"CPUs or 0"`
	// AllocatorPriority decides which types get CPUs first, when several balloons need CPUs at the same time.
	AllocatorPriority string `json:"allocatorPriority" default:"high" check:"high|normal|low|none"`
	// PreferNewBalloons makes a new balloon for a container, if possible. If this option is off, a container
	// shares a balloon that has room, and gets a new balloon only if none has room.
	PreferNewBalloons bool `json:"preferNewBalloons"`
	// PreferPerNamespaceBalloon places containers of one namespace in the same balloon, and makes a new
	// balloon for another namespace.
	PreferPerNamespaceBalloon bool `json:"preferPerNamespaceBalloon"`
	// PreferSpreadingPods turns off the attempt to place containers of one pod in the same balloon.
	PreferSpreadingPods bool `json:"preferSpreadingPods"`
	// PreferSpreadOnPhysicalCores turns on the policy's option of the same name for this type.
	PreferSpreadOnPhysicalCores bool `json:"preferSpreadOnPhysicalCores"`
	// AllocatorTopologyBalancing turns on the policy's option of the same name for this type.
	AllocatorTopologyBalancing bool `json:"allocatorTopologyBalancing"`
	// PinMemory overrides the policy's option pinMemory for this type: always, never, or empty for no override.
	PinMemory string `json:"pinMemory" check:"|always|never"`
	// MemoryTypes are the kinds of memory to which containers are bound: to the nearest memory node of each
	// kind. Empty means DRAM.
	MemoryTypes []string `json:"memoryTypes" check:"memory types"`
	// Components make each balloon of the type a composite. A composite consists of one component of each listed type.
	// The components get equal parts of the CPUs.
	Components []ComponentOptions `json:"components"`
	// ComponentCreation is "all" or "balance-balloons". With "balance-balloons", a composite has only one
	// component: of the listed type that has the fewest balloons.
	ComponentCreation string `json:"componentCreation" default:"all" check:"all|balance-balloons"`
	// PreferCloseToDevices are paths below /sys/devices of NUMA nodes, CPUs, caches of CPUs and PCI devices,
	// the most important first. Balloons get CPUs near these devices, and balloons of types that do not
	// list a device get other CPUs, if there are enough. An entry podresourceapi:RESOURCE means the devices of a
	// resource that the kubelet granted to the balloon's containers. RESOURCE may be a pattern such as
	// example.com/*.
	PreferCloseToDevices []string `json:"preferCloseToDevices" check:"near devices"`
	// PreferIsolCPUs gives balloons isolated CPUs (isolcpus). Balloons of other types get
	// isolated CPUs only if no other CPUs are idle.
	PreferIsolCPUs bool `json:"preferIsolCpus"`
	// PreferCoreType is the kind of cores that balloons get: efficient, performance, or empty
	// for any.
	PreferCoreType string `json:"preferCoreType" check:"|efficient|performance"`
	// HideHyperthreads lets containers run on only one thread of each core. The other threads belong to the
	// balloon, too.
	HideHyperthreads bool `json:"hideHyperthreads"`
	// ShareIdleCPUsInSame lets containers also use idle CPUs in the same part of the node as their balloon.
	// The value is the kind of part, such as numa; empty turns the option off.
	ShareIdleCPUsInSame string `json:"shareIdleCPUsInSame" check:"|system|package|die|numa|l2cache|core|thread"`
	// Loads are the names of load classes (loadClasses).
	Loads []string `json:"loads" check:"class"`
	// SchedulingClass is the name of the scheduling class (schedulingClasses) in which processes of
	// containers start; empty means no class. An annotation for a container has priority.
	SchedulingClass string `json:"schedulingClass" check:"class"`
	// CPUClass is the name of the CPU class (cpuClasses) of the CPUs of balloons. Empty means the class
	// with the name "default", if there is one.
	CPUClass string `json:"cpuClass" check:"class"`
}

// LoadOptions are one load class. The class says what the containers of a balloon use heavily, if the balloon's type
// names the class.
type LoadOptions struct {
	// Name is the name of the class.
	Name string `json:"name" check:"class"`
	// Level is what the containers use heavily. Two balloons with loads of the same level get CPUs that do not share a
	// core, or an L2 cache, if there are enough.
	Level string `json:"level" default:"core" check:"core|l2cache"`
	// OverloadsLevelInBalloon means that CPUs within one balloon also do not share a core, or an L2 cache, if there
	// are enough.
	OverloadsLevelInBalloon bool `json:"overloadsLevelInBalloon"`
}

// ComponentOptions are one component of composite balloons.
type ComponentOptions struct {
	// BalloonType is the name of the balloon type of the component.
	BalloonType string `json:"balloonType" check:"balloon type"`
}

// CPUClassOptions are one CPU class: settings of the kernel for the CPUs of balloons whose type names the class. An
// empty key leaves the kernel's setting as it is.
type CPUClassOptions struct {
	// Name is the name of the class.
	Name string `json:"name" check:"class"`
	// MinFreq is the lowest frequency: a number of kHz, a number with a unit such as "2.9GHz", or min, base
	// or turbo. These words mean the lowest, the base and the highest frequency of the hardware.
	MinFreq string `json:"minFreq" check:"frequency"`
	// MaxFreq is the highest frequency, in the same form as minFreq.
	MaxFreq string `json:"maxFreq" check:"frequency"`
	// FreqGovernor is the cpufreq governor, such as performance.
	FreqGovernor string `json:"freqGovernor" check:"kernel word"`
	// EnergyPerformancePreference says whether the processor should prefer performance or saving energy: a
	// word that the cpufreq driver knows, or a number from 0 (performance) to 255.
	EnergyPerformancePreference string `json:"energyPerformancePreference" check:"kernel word"`
	// DisabledCStates are the names of idle states that the CPUs do not enter, such as C6.
	DisabledCStates []string `json:"disabledCstates" check:"kernel words"`
}

// ExpressionOptions are a condition over a container.
type ExpressionOptions struct {
	// Key is name, namespace or qosclass, or pod/ followed by name, namespace, qosclass, uid, id or
	// labels/KEY. A key that begins with a colon is a list of keys, such as ":pod/namespace:name". The value of
	// such a list is the values of its keys, joined by colons.
	Key string `json:"key" check:"text"`
	// Operator compares the value of the key with values.
	Operator string `json:"operator" check:"Equals|NotEqual|In|NotIn|Exists|NotExists|AlwaysTrue|Matches|MatchesNot|MatchesAny|MatchesNone"`
	// Values are the values with which the operator compares the value of the key. For Matches, MatchesNot,
	// MatchesAny and MatchesNone they are patterns.
	Values []string `json:"values" check:"texts"`
}
