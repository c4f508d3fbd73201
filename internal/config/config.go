package config

import "time"

//go:generate go run ../tools/keydocs

// APIVersion and Kind are what every configuration file starts with.
const (
	APIVersion = "trimtab.io/v1alpha1"
	Kind       = "Config"
)

// Config is the whole configuration of an agent: one YAML document.
type Config struct {
	// APIVersion is the version of this file's shape.
	APIVersion string `json:"apiVersion"`
	// Kind is always "Config".
	Kind string `json:"kind"`
	// Strict refuses to create a container whose annotations are malformed or
	// ask for what is refused. Off, the pod runs with defaults and the problem
	// is reported.
	Strict bool `json:"strict"`
	// Dialects are the annotation dialects read, first wins where two
	// disagree.
	Dialects []string `json:"dialects"`
	// FailurePolicy says whose failure stops a container from being created.
	FailurePolicy FailurePolicy `json:"failurePolicy"`
	// Authorisation says what pods may ask for, by namespace. The first rule
	// that matches wins; where none does, safe defaults hold, which
	// docs/authorisation.md lists.
	Authorisation []Rule `json:"authorisation"`
	// Pools says which CPUs the shared pools are made of.
	Pools Pools `json:"pools"`
	// Placement says who chooses CPUs, and how large pools are.
	Placement Placement `json:"placement"`
	// Authority says whose word it is which containers own CPUs. With "agent" it is
	// the agent's, and the kubelet's CPU manager policy is to be "none". With
	// "kubelet" the kubelet's static CPU manager gives CPUs away: the agent keeps
	// everybody else off them, shapes the rest, and lets nobody own any itself.
	Authority string `json:"authority"`
	// Hooks switches and tunes each hook.
	Hooks Hooks `json:"hooks"`
	// PodSpec says who is asked for what the runtime does not tell of pods.
	PodSpec PodSpec `json:"podspec"`
	// Attach is how the agent learns of containers and gives them what was
	// decided: "nri" is a plugin of the runtime and acts before a container
	// exists, "cri" stands between the kubelet and the runtime and does the same,
	// "bypass" stays beside the runtime and acts when its cgroup appears, "auto" is
	// nri while the runtime's NRI socket works, and bypass meanwhile, and "hooks" is
	// asked by a runtime proxy that is there already.
	Attach string `json:"attach"`
	// NRI configures the NRI attachment.
	NRI NRI `json:"nri"`
	// CRI says where the runtime answers the kubelet's questions, and ours, and
	// where the CRI proxy serves.
	CRI CRI `json:"cri"`
	// Bypass configures the bypass attachment.
	Bypass Bypass `json:"bypass"`
	// HookServers says which policies outside of Trimtab are asked.
	HookServers HookServers `json:"hookServers"`
	// Cgroup says where the kernel's cgroup files are.
	Cgroup Cgroup `json:"cgroup"`
	// Keeper says how values are kept in the kernel.
	Keeper Keeper `json:"keeper"`
	// Paths are the files and directories of the agent.
	Paths Paths `json:"paths"`
	// HTTP configures the metrics page and the probes.
	HTTP HTTP `json:"http"`
	// Log configures the agent's log.
	Log Log `json:"log"`
}

// FailurePolicy says what a fault of Trimtab's own does to a pod. A policy's
// no, such as a refusal in strict mode, is no fault and stands in any case.
type FailurePolicy struct {
	// Agent is "ignore" or "fail". With "ignore" a container that could not be
	// decided is created without Trimtab. With "fail" its creation fails, and
	// runtimes that know failure policies (NRI 0.12.4 and later) also fail it
	// where the agent does not answer.
	Agent string `json:"agent"`
	// Hooks lists hooks without which no container is created. The failure of
	// any other hook is reported, and the container goes without its values.
	Hooks []string `json:"hooks"`
}

// Rule says what pods of some namespaces may ask for.
type Rule struct {
	// Kinds are the kinds of intent the rule is about; "class" is every class,
	// "*" everything.
	Kinds []string `json:"kinds"`
	// Namespaces are names of namespaces, or patterns of them: "*" stands for
	// any letters, "?" for one, "[a-c]" for one of some.
	Namespaces []string `json:"namespaces"`
	// Decision is "allow", "cap" or "refuse". Capped, assigned CPUs are at most
	// the pod's CPU limit and request, batch resources are for pods that are
	// BestEffort to Kubernetes, and huge pages are at most what Kubernetes gave
	// the container; nothing else has a cap.
	Decision string `json:"decision"`
	// MostCPUs bounds the CPUs assigned to a pod further, where they are
	// capped; 0 does not.
	MostCPUs int `json:"mostCPUs"`
}

// Pools says which CPUs the shared pools are made of. CPUs owned exclusively
// by a container are taken out of every pool by themselves.
type Pools struct {
	// Reserved CPUs are in neither pool and are never assigned exclusively.
	Reserved string `json:"reserved"`
	// Shared is the CPU list of the shared pool; empty means all online CPUs
	// less the reserved ones.
	Shared string `json:"shared"`
	// Reclaimed is the CPU list of the pool of reclaimed (batch) pods; empty
	// means all online CPUs less the reserved ones.
	Reclaimed string `json:"reclaimed"`
	// System is the CPU list of containers of class system; empty treats
	// them like pods without a class.
	System string `json:"system"`
	// HardReserved keeps everybody but containers of class system off reserved
	// CPUs. Off, pods that no pool is for may run there.
	HardReserved bool `json:"hardReserved"`
}

// Placement says who chooses CPUs where no scheduler did, and how large pools
// are. It needs hooks.cpuset.
type Placement struct {
	// Policy is "none" or "pools". With "none" containers own CPUs that a
	// scheduler assigned, and pools are what pools says. With "pools" the agent
	// chooses CPUs for pods of class dedicated, shared pools are at least as large as
	// their containers' requests, and the reclaimed pool has what these leave.
	Policy string `json:"policy"`
	// Reclaim is what the reclaimed pool has. With "together" it is every CPU no
	// shared pool needs, and shared pools use these, too; with "leftover" it alone
	// has them; with "overlap" shared pools divide all CPUs nobody owns, and
	// reclaimed containers run on a part of them.
	Reclaim string `json:"reclaim"`
	// ReclaimedCPUs is how many CPUs the reclaimed pool has at least. Where fewer
	// are left it overlaps with the default pool.
	ReclaimedCPUs int `json:"reclaimedCPUs"`
	// WholeCPUs says which containers without a class own CPUs: those that ask
	// for whole ones, with equal request and limit, in "guaranteed" pods, in pods
	// of "any" QoS class, or in none ("never").
	WholeCPUs string `json:"wholeCPUs"`
	// LendLSR lets reclaimed containers use the CPUs that LSR pods own. It is
	// meant for nodes where hooks.groupIdentity puts reclaimed pods behind all
	// others.
	LendLSR bool `json:"lendLSR"`
	// Spread places owners in the emptiest part of the node. Off, they are put
	// together, so that large parts stay free.
	Spread bool `json:"spread"`
	// NearDevices has owners rather own CPUs of the NUMA nodes that their devices
	// are at, as the kubelet's PodResources API, device plugins and the kernel tell.
	NearDevices bool `json:"nearDevices"`
	// PreferCoreType is the kind of cores owners rather own CPUs of, on hybrid
	// processors: "performance", "efficient", or "any". A pod says otherwise by
	// trimtab.io/prefer-core-type.
	PreferCoreType string `json:"preferCoreType"`
	// IsolatedCPUs says which owners rather own CPUs that the kernel's scheduler
	// leaves out (isolcpus): those of a "single" CPU, all ("prefer") or none
	// ("avoid"). A pod says otherwise by trimtab.io/prefer-isolated-cpus.
	IsolatedCPUs string `json:"isolatedCPUs"`
}

// Hooks switches and tunes each hook.
type Hooks struct {
	// CPUSet tunes the cpuset hook.
	CPUSet CPUSetHook `json:"cpuset"`
	// Batch tunes the batch resource hook.
	Batch BatchHook `json:"batch"`
	// Normalization tunes the CPU normalization hook.
	Normalization NormalizationHook `json:"normalization"`
	// GroupIdentity tunes the group identity hook.
	GroupIdentity GroupIdentityHook `json:"groupIdentity"`
	// OOMScore tunes the OOM score hook.
	OOMScore OOMScoreHook `json:"oomScore"`
	// GPU tunes the GPU environment hook.
	GPU GPUHook `json:"gpu"`
	// RDMA tunes the RDMA hook.
	RDMA RDMAHook `json:"rdma"`
	// Hugepages tunes the huge page hook.
	Hugepages HugepagesHook `json:"hugepages"`
	// BlockIO tunes the block I/O hook.
	BlockIO BlockIOHook `json:"blockIO"`
	// RDT tunes the hook of caches and memory bandwidth.
	RDT RDTHook `json:"rdt"`
	// CoreSched tunes the core scheduling hook.
	CoreSched CoreSchedHook `json:"coreSched"`
	// Preemption tunes the preemption hook.
	Preemption PreemptionHook `json:"preemption"`
	// Burst tunes the CPU burst hook.
	Burst BurstHook `json:"burst"`
	// Partition tunes the partition hook.
	Partition PartitionHook `json:"partition"`
	// CPUEnv tunes the hook that tells containers of their CPUs.
	CPUEnv CPUEnvHook `json:"cpuEnv"`
}

// CPUSetHook tunes the cpuset hook.
type CPUSetHook struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// UnsetQuota lifts the CFS quota of containers that own their CPUs, where
	// the pod's annotation trimtab.io/unset-cpu-quota does not say otherwise.
	UnsetQuota bool `json:"unsetQuota"`
	// Unlabelled says what pods without a class get: "leave" touches them only
	// where exclusive CPUs must be kept clear, "shared" puts them into the
	// shared pool.
	Unlabelled string `json:"unlabelled"`
	// ReclaimedByNUMA puts a reclaimed pod for which the scheduler chose NUMA
	// nodes into the reclaimed pool of those nodes.
	ReclaimedByNUMA bool `json:"reclaimedByNUMA"`
}

// BatchHook tunes the batch resource hook.
type BatchHook struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
}

// NormalizationHook tunes the CPU normalization hook.
type NormalizationHook struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Ratio is how much faster this node's CPUs are than those that CPU limits
	// are written for: quotas are divided by it. 1 and less change nothing.
	Ratio string `json:"ratio"`
}

// GroupIdentityHook tunes the group identity hook.
type GroupIdentityHook struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// LSR is the identity of LSE and LSR pods, and of Guaranteed pods without a
	// class; 0 is none.
	LSR int `json:"lsr"`
	// LS is the identity of LS pods, and of Burstable pods without a class; 0
	// is none.
	LS int `json:"ls"`
	// BE is the identity of BE pods, and of BestEffort pods without a class; 0
	// is none.
	BE int `json:"be"`
	// Fallback is what stands in for identities below 0 where the kernel has
	// none: "idle" makes the pod's cgroup cpu.idle, "weight" gives it the least
	// weight.
	Fallback string `json:"fallback"`
}

// OOMScoreHook tunes the OOM score hook.
type OOMScoreHook struct {
	// Enabled switches the hook on. Off by default: whoever may write a pod's
	// annotations could have other pods killed first.
	Enabled bool `json:"enabled"`
}

// GPUHook tunes the GPU environment hook.
type GPUHook struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// HAMiLibrary is the host path of libvgpu.so. It is bind-mounted into
	// containers that were given a part of a GPU; empty, such containers get
	// the device list only and the missing library is reported.
	HAMiLibrary string `json:"hamiLibrary"`
	// HAMiLock is the directory in which containers with a part of a GPU make
	// HAMi-core's lock, one for all of the node. The agent makes it, and the
	// directory above it, which root alone can enter; used with hamiLibrary only.
	HAMiLock string `json:"hamiLock"`
	// Devices is how containers get their GPUs: "env" tells the runtime's GPU
	// support by NVIDIA_VISIBLE_DEVICES, "nodes" hands over the device nodes
	// too, and "cdi" asks the runtime for nvidia.com/gpu=NAME.
	Devices string `json:"devices"`
	// Name is what GPUs are called, by "index" or by "uuid".
	Name string `json:"name"`
}

// RDMAHook tunes the RDMA hook.
type RDMAHook struct {
	// Enabled switches the hook on. Off by default: it hands device nodes to
	// whom an annotation names.
	Enabled bool `json:"enabled"`
}

// HugepagesHook tunes the huge page hook.
type HugepagesHook struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
}

// BlockIOHook tunes the block I/O hook.
type BlockIOHook struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// LSRWeight is the io.weight of LSE and LSR pods; 0 leaves it alone.
	LSRWeight int `json:"lsrWeight"`
	// LSWeight is the io.weight of LS pods; 0 leaves it alone.
	LSWeight int `json:"lsWeight"`
	// BEWeight is the io.weight of BE pods; 0 leaves it alone.
	BEWeight int `json:"beWeight"`
	// LSRClass is the class of the runtime's block I/O configuration that
	// containers of LSE and LSR pods are created with; empty, none. The runtime
	// refuses containers of a class its configuration does not have.
	LSRClass string `json:"lsrClass"`
	// LSClass is the same for LS pods.
	LSClass string `json:"lsClass"`
	// BEClass is the same for BE pods.
	BEClass string `json:"beClass"`
}

// RDTHook tunes the hook of caches and memory bandwidth.
type RDTHook struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// LSRCache is which part of the ways of the L3 cache LSE and LSR pods have,
	// from one percentage to another; 0-100 is all of them.
	LSRCache string `json:"lsrCache"`
	// LSRBandwidth is the percentage of the memory bandwidth they have.
	LSRBandwidth int `json:"lsrBandwidth"`
	// LSCache is the part of the cache of LS pods.
	LSCache string `json:"lsCache"`
	// LSBandwidth is the percentage of the memory bandwidth of LS pods.
	LSBandwidth int `json:"lsBandwidth"`
	// BECache is the part of the cache of BE pods.
	BECache string `json:"beCache"`
	// BEBandwidth is the percentage of the memory bandwidth of BE pods.
	BEBandwidth int `json:"beBandwidth"`
	// Measure has the kernel measure each container's use of cache and
	// bandwidth, in a group below mon_groups.
	Measure bool `json:"measure"`
}

// CoreSchedHook tunes the core scheduling hook.
type CoreSchedHook struct {
	// Enabled switches the hook on. It cannot be on together with
	// groupIdentity on a kernel that has group identities.
	Enabled bool `json:"enabled"`
}

// PreemptionHook tunes the preemption hook.
type PreemptionHook struct {
	// Enabled switches the hook on. Off by default: schedulers use the same
	// annotation for something else.
	Enabled bool `json:"enabled"`
	// Yield is how preemptable pods give way on the CPU: "idle" makes the pod's
	// cgroup cpu.idle, or gives it the least weight where the kernel has no such
	// file, "weight" gives it the least weight, "none" neither.
	Yield string `json:"yield"`
	// MemoryHigh is the memory.high of preemptable pods in percent of their memory
	// limit; 0 sets none.
	MemoryHigh int `json:"memoryHigh"`
	// MemoryLow is the memory.low of pods that are not preemptable, and of their
	// containers, in percent of the memory limit; 0 sets none. Namespaces need
	// a rule that allows memory-protection.
	MemoryLow int `json:"memoryLow"`
	// MemoryMin is the same for memory.min.
	MemoryMin int `json:"memoryMin"`
	// KillTogether has the kernel kill all of a preemptable pod where it kills one
	// process of it for want of memory.
	KillTogether bool `json:"killTogether"`
}

// BurstHook tunes the CPU burst hook.
type BurstHook struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
}

// PartitionHook tunes the hook that makes pods which own CPUs cpuset partitions.
type PartitionHook struct {
	// Enabled switches the hook on. It needs cgroup v2 and Linux 6.7, and changes
	// nothing elsewhere. Off by default: owned CPUs vanish from everybody, services
	// of the host among them.
	Enabled bool `json:"enabled"`
}

// CPUEnvHook tunes the hook that tells containers of their CPUs by environment,
// where their pod asks for it (trimtab.io/cpu-env).
type CPUEnvHook struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Variables are those that pods get which ask for the usual ones: NAME=list
	// is the list of the CPUs a container owns, and not there for one that owns
	// none; NAME=count, or NAME, how many CPUs it can keep busy.
	Variables []string `json:"variables"`
}

// NRI configures the NRI attachment.
type NRI struct {
	// Enabled switches the attachment on.
	Enabled bool `json:"enabled"`
	// Socket is the runtime's NRI socket.
	Socket string `json:"socket"`
	// Name is the plugin name told to the runtime.
	Name string `json:"name"`
	// Index orders plugins in the runtime: two digits, in quotes.
	Index string `json:"index"`
	// UpdateInterval paces updates of the runtime's stored copy of live
	// containers, in milliseconds between two containers.
	UpdateInterval int `json:"updateIntervalMilliseconds"`
	// Cede lists fields that other NRI plugins own, such as cpu.shares. They
	// are not claimed when a container is created, which would fail it, but
	// written when it starts.
	Cede []string `json:"cede"`
}

// Pace returns UpdateInterval as a duration.
func (n NRI) Pace() time.Duration { return time.Duration(n.UpdateInterval) * time.Millisecond }

// PodSpec says who is asked for what the runtime does not tell of pods:
// requests, init containers and sidecars, resources of the pod as a whole.
// Nothing of it is needed: without a spec a container counts as an app
// container.
type PodSpec struct {
	// Wait is the longest time, in milliseconds, that a pod or container is held
	// up for its spec, and that only while a source answers. 0 never waits: a
	// spec that comes later is taken into account then.
	Wait int `json:"waitMilliseconds"`
	// Poll is the pause between two questions to the kubelet's /pods, in
	// seconds.
	Poll int `json:"pollSeconds"`
	// Kubelet says how the kubelet is asked.
	Kubelet KubeletClient `json:"kubelet"`
}

// KubeletClient says how the kubelet is asked: by its Pods API first, by /pods
// where that is not there; for what it granted by its PodResources API.
type KubeletClient struct {
	// PodsSocket is the socket of the kubelet's Pods API, which Kubernetes 1.37
	// has, and 1.36 with the feature gate PodsAPI. Empty, it is not asked.
	PodsSocket string `json:"podsSocket"`
	// PodResourcesSocket is the socket of the kubelet's PodResources API, which
	// tells the devices that Kubernetes granted containers: these may be asked
	// for where no rule refuses them. With authority: kubelet it tells which CPUs
	// and memory nodes the kubelet gave them, too. Empty, it is not asked.
	PodResourcesSocket string `json:"podResourcesSocket"`
	// URL is where the kubelet serves /pods: "https://127.0.0.1:10250", or the
	// read-only port, "http://127.0.0.1:10255", on this machine alone. Empty, it
	// is not asked.
	URL string `json:"url"`
	// TokenFile holds a bearer token for the kubelet. It is read anew for each
	// question, and sent by https only.
	TokenFile string `json:"tokenFile"`
	// CAFile holds the certificates that the kubelet's is checked against; empty
	// takes the system's.
	CAFile string `json:"caFile"`
	// ServerName is the name the kubelet's certificate must have; empty takes
	// the host of url.
	ServerName string `json:"serverName"`
	// CertFile is a client certificate for the kubelet.
	CertFile string `json:"certFile"`
	// KeyFile is the key of certFile.
	KeyFile string `json:"keyFile"`
	// SkipVerify takes any certificate. Whoever answers at url is sent the token
	// then, and believed.
	SkipVerify bool `json:"insecureSkipVerify"`
	// NodeName is the name pods' node must have, so that another node's kubelet
	// is not believed; empty takes the one name that all pods agree on.
	NodeName string `json:"nodeName"`
}

// CRI says where the runtime answers, and where the CRI proxy serves.
type CRI struct {
	// Endpoint is the runtime's CRI socket, as the kubelet's
	// --container-runtime-endpoint names it, or would without Trimtab between.
	Endpoint string `json:"endpoint"`
	// ImageEndpoint is the socket of an image service of its own; empty where
	// the runtime has both, which is usual. The CRI proxy serves it beside
	// cri.socket, on a socket whose name ends in "-images.sock".
	ImageEndpoint string `json:"imageEndpoint"`
	// Socket is where the CRI proxy serves: the kubelet is started with
	// --container-runtime-endpoint=unix:// and this path.
	Socket string `json:"socket"`
}

// Bypass configures the bypass attachment.
type Bypass struct {
	// CgroupRoot is the kubelet's --cgroup-root, below which its kubepods
	// cgroups are; empty, they are at the root of the hierarchy. Pods the
	// runtime tells of are found wherever they are.
	CgroupRoot string `json:"cgroupRoot"`
	// Resync is how often everything is listed and compared, whatever was told
	// meanwhile, in seconds.
	Resync int `json:"resyncSeconds"`
}

// HookServers says which policies outside of Trimtab are asked: servers of
// runtime.v1alpha1.RuntimeHookService.
type HookServers struct {
	// Directory holds a JSON file per server and is followed; empty, nobody is
	// asked.
	Directory string `json:"directory"`
	// Timeout is how long one server may take for one call, in milliseconds. All
	// servers of an event together have at most 1500.
	Timeout int `json:"timeoutMilliseconds"`
	// Socket is where the agent itself is a hook server, with attach: hooks.
	Socket string `json:"socket"`
	// Register is the file that tells runtime proxies of that socket; it is
	// written at a start with attach: hooks. Empty, none is.
	Register string `json:"register"`
}

// Patience returns Timeout as a duration.
func (h HookServers) Patience() time.Duration { return time.Duration(h.Timeout) * time.Millisecond }

// Interval returns Resync as a duration.
func (b Bypass) Interval() time.Duration { return time.Duration(b.Resync) * time.Second }

// Cgroup says where the kernel's cgroup files are.
type Cgroup struct {
	// Root is the directory the cgroup file system is mounted on.
	Root string `json:"root"`
	// Version is "auto", "v1" or "v2"; auto looks at what is mounted.
	Version string `json:"version"`
}

// Keeper says how values are kept in the kernel once they are there.
type Keeper struct {
	// GiveUpAfter is how often within a minute one file that somebody else
	// writes is put right, after which it is left to them, and reported, until
	// another value is decided for it, the configuration of the keeper changes or
	// the agent is started anew. Lists of CPUs and memory nodes and partitions,
	// which keep containers apart, are never left to others: they are written again
	// less often, every 10 s at last, and reported. 0 never gives up, nor slows down.
	GiveUpAfter int `json:"giveUpAfter"`
}

// Paths are the files and directories of the agent.
type Paths struct {
	// Sys is the directory sysfs is mounted on.
	Sys string `json:"sys"`
	// Dev is the directory with the node's device nodes.
	Dev string `json:"dev"`
	// Resctrl is the directory resctrl is mounted on.
	Resctrl string `json:"resctrl"`
	// StatusSocket is the root-only socket that status, explain and events
	// ask; empty, nothing is served there.
	StatusSocket string `json:"statusSocket"`
	// Key is the file of the secret that signs records. It is made at the
	// first start; it lies apart from any state directory, so that records
	// stay readable when state is deleted.
	Key string `json:"key"`
	// State is the directory of what the agent remembers beyond what the
	// runtime keeps for it.
	State string `json:"state"`
}

// HTTP configures the metrics page and the probes.
type HTTP struct {
	// Address is where /metrics, /healthz and /readyz are served, e.g.
	// "127.0.0.1:9464". Empty, nothing is: the page is for whoever reaches the
	// port, so a node opens it only when told to.
	Address string `json:"address"`
}

// Log configures the agent's log.
type Log struct {
	// Level is the least severe level that is logged.
	Level string `json:"level"`
	// Format is text for people or json for machines.
	Format string `json:"format"`
}

// Default returns the configuration that is in force where a file says
// nothing.
func Default() Config {
	return Config{
		APIVersion:    APIVersion,
		Kind:          Kind,
		Dialects:      []string{"koordinator", "katalyst", "rubik", "trimtab", "kubernetes"},
		FailurePolicy: FailurePolicy{Agent: "ignore", Hooks: []string{}},
		Authorisation: []Rule{},
		Authority:     "agent",
		Placement:     Placement{Policy: "none", Reclaim: "together", ReclaimedCPUs: 1, WholeCPUs: "never", NearDevices: true, PreferCoreType: "any", IsolatedCPUs: "single"},
		Hooks: Hooks{
			CPUSet: CPUSetHook{Enabled: true, UnsetQuota: true, Unlabelled: "leave"},
			Batch:  BatchHook{Enabled: true},
			GPU:    GPUHook{Enabled: true, Devices: "env", Name: "index", HAMiLock: "/var/lib/trimtab/hami/lock"},

			Normalization: NormalizationHook{Ratio: "1.00"},
			RDT:           RDTHook{LSRCache: "0-100", LSRBandwidth: 100, LSCache: "0-100", LSBandwidth: 100, BECache: "0-30", BEBandwidth: 100},
			GroupIdentity: GroupIdentityHook{LSR: 2, LS: 2, BE: -1, Fallback: "none"},
			Preemption:    PreemptionHook{Yield: "idle"},
			CPUEnv:        CPUEnvHook{Enabled: true, Variables: []string{"TRIMTAB_CPUS=list", "TRIMTAB_CPU_COUNT=count"}},
		},
		PodSpec: PodSpec{
			Wait: 50, Poll: 10, Kubelet: KubeletClient{
				PodsSocket: "/var/lib/kubelet/pods-api/pods-api.sock", PodResourcesSocket: "/var/lib/kubelet/pod-resources/kubelet.sock",
			},
		},
		Attach: "nri",
		CRI:    CRI{Endpoint: "unix:///var/run/containerd/containerd.sock", Socket: "/var/run/trimtab/cri.sock"},
		Bypass: Bypass{Resync: 60},

		HookServers: HookServers{Directory: "/etc/runtime/hookserver.d", Timeout: 500, Socket: "/var/run/trimtab/hooks.sock", Register: "/etc/runtime/hookserver.d/trimtab.json"},
		NRI: NRI{
			Enabled: true, Socket: "/var/run/nri/nri.sock", Name: "trimtab", Index: "90",
			UpdateInterval: 50, Cede: []string{},
		},
		Cgroup: Cgroup{Root: "/sys/fs/cgroup", Version: "auto"},
		Keeper: Keeper{GiveUpAfter: 30},
		Paths: Paths{
			Sys: "/sys", Dev: "/dev", Resctrl: "/sys/fs/resctrl", StatusSocket: "/run/trimtab/trimtab.sock",
			Key: "/etc/trimtab/record.key", State: "/var/lib/trimtab",
		},
		Log: Log{Level: "info", Format: "text"},
	}
}
