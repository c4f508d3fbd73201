package config

import (
	"time"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/placement/class"
	"github.com/trimtab/trimtab/internal/rules"
)

//go:generate go run ../tools/keydocs

// APIVersion and Kind are the first keys of every configuration file.
const (
	APIVersion = "trimtab.io/v1alpha1"
	Kind       = "Config"
)

// Milliseconds is the value of a key that is a duration in milliseconds.
type Milliseconds int

// Seconds is the value of a key that is a duration in seconds.
type Seconds int

// Duration returns the value as a time.Duration.
func (m Milliseconds) Duration() time.Duration { return time.Duration(m) * time.Millisecond }

// Duration returns the value as a time.Duration.
func (s Seconds) Duration() time.Duration { return time.Duration(s) * time.Second }

// Config is the whole configuration of an agent: one YAML document.
type Config struct {
	// APIVersion is the version of the format of this file.
	APIVersion string `json:"apiVersion" default:"trimtab.io/v1alpha1" check:"version"`
	// Kind is always "Config".
	Kind string `json:"kind" default:"Config" check:"kind"`
	// Mode is what the agent does with its decisions. With "enforce" the agent writes the decided values to
	// containers and kernel files. With "observe" the agent changes no container and no kernel file. It explains
	// its decisions, and reports each value of the node that differs from the decided value (docs/observe.md).
	Mode string `json:"mode" default:"enforce" check:"enforce|observe" restart:"yes"`
	// Strict refuses to create a container whose annotations are malformed or request something that is refused. If
	// this key is off, the pod runs with defaults and the agent reports the problem.
	Strict bool `json:"strict"`
	// Dialects are the annotation dialects that the agent reads. If two dialects contradict each other, the dialect
	// that is earlier in this list has priority.
	Dialects []string `json:"dialects" check:"dialects"`
	// FailurePolicy says which failures stop the creation of a container.
	FailurePolicy FailurePolicy `json:"failurePolicy"`
	// Authorization says what pods may request, by namespace. The first rule
	// that matches applies. If no rule matches, the safe defaults of docs/kinds.md apply.
	Authorization []Rule `json:"authorization" was:"authorisation"`
	// Pools says which CPUs the shared pools are made of.
	Pools Pools `json:"pools"`
	// Placement configures the policy that chooses CPUs, and the size of pools.
	Placement Placement `json:"placement"`
	// TopologyManager says how strictly the CPUs, memory and devices of a container
	// come from the same NUMA nodes. It needs placement.policy: pools and authority:
	// agent. The kubelet's own topologyManagerPolicy must then be "none".
	TopologyManager TopologyManager `json:"topologyManager"`
	// Authority says who decides which containers own CPUs. With "agent" the
	// agent decides, and the kubelet's CPU manager policy must be "none". With
	// "kubelet" the kubelet's static CPU manager assigns exclusive CPUs: the agent keeps
	// all other containers off them, and assigns no exclusive CPUs itself.
	// With "dra" a driver for dynamic resource allocation assigns CPUs by resource
	// claims. If the driver's NRI plugin runs, nri.cede must list cpuset.cpus.
	Authority string `json:"authority" default:"agent" check:"agent|kubelet|dra"`
	// Hooks enables and configures each hook.
	Hooks hook.Options `json:"hooks"`
	// Rules are a list of conditions about pods and containers, written in CEL. Each rule has the values that the
	// agent sets if the condition is true. docs/rules.md describes rules.
	Rules []rules.RuleOptions `json:"rules"`
	// PodSpec says where the agent reads those facts about pods that the runtime does not report.
	PodSpec PodSpec `json:"podspec" restart:"yes"`
	// Attach is how the agent learns of containers and applies its decisions. With
	// "nri" the agent is a plugin of the runtime, and acts before a container exists.
	// With "cri" it is a proxy between the kubelet and the runtime, and also acts before
	// a container exists. With "bypass" it reads containers from the runtime, and acts
	// when a container's cgroup appears. "auto" means nri while the runtime's NRI socket
	// works, and otherwise bypass. With "hooks" a runtime proxy that is already
	// installed calls the agent.
	Attach string `json:"attach" default:"nri" check:"nri|cri|bypass|auto|hooks" restart:"yes"`
	// NRI configures the NRI attachment.
	NRI NRI `json:"nri"`
	// CRI has the runtime's CRI socket, and the socket of the CRI proxy.
	CRI CRI `json:"cri" restart:"yes"`
	// Bypass configures the bypass attachment.
	Bypass Bypass `json:"bypass" restart:"yes"`
	// HookServers says which external hook servers the agent calls.
	HookServers HookServers `json:"hookServers" restart:"yes"`
	// ResourcePlugins says which QoS resource plugins (QRM plugins of Katalyst) allocate
	// resources that pods request.
	ResourcePlugins ResourcePlugins `json:"resourcePlugins" restart:"yes"`
	// Ahead says whether the agent decides values for a pod before the runtime reports the pod.
	Ahead Ahead `json:"ahead" restart:"yes"`
	// NRIHost lets NRI plugins connect to the agent if the runtime has no NRI.
	NRIHost NRIHost `json:"nriHost" restart:"yes"`
	// PodResources serves the kubelet's PodResources API to monitoring agents and device plugins, with the CPUs and
	// memory that the agent gave to containers.
	PodResources PodResources `json:"podResources" restart:"yes"`
	// Cgroup says where the kernel's cgroup files are.
	Cgroup Cgroup `json:"cgroup" restart:"yes"`
	// Keeper says how often the agent repairs a kernel file that another program changes.
	Keeper Keeper `json:"keeper"`
	// Paths are the files and directories of the agent.
	Paths Paths `json:"paths" restart:"yes"`
	// HTTP configures the metrics page, the probes and the web page of the node.
	HTTP HTTP `json:"http" restart:"yes"`
	// Cluster says what the agent does through the Kubernetes API server. The agent can decide about the pods of its
	// node without the API server.
	Cluster Cluster `json:"cluster" restart:"yes"`
	// Log configures the agent's log.
	Log Log `json:"log"`
}

// FailurePolicy says what happens to a pod after a fault of Trimtab itself. A refusal, such as in strict mode, is not a
// fault, and FailurePolicy does not change it.
type FailurePolicy struct {
	// Agent is what happens to a container if the agent cannot decide its values. With
	// "ignore" the container is created without Trimtab's values. With "fail" its
	// creation fails. Runtimes that know failure policies (NRI 0.12.4 and later) then
	// also fail the creation if the agent does not answer. "Ignore" and "Fail", as
	// Kubernetes spells them, are also valid.
	Agent string `json:"agent" default:"ignore" check:"ignore|fail" also:"Ignore|Fail" restart:"the agent uses the new value at once; the runtime gets it at its next connection"`
	// Hooks lists the hooks whose failure makes the creation of a container fail. If any other hook fails, the agent
	// reports the failure, and the container is created without the values of this hook.
	Hooks []string `json:"hooks" check:"hooks"`
}

// Rule says what pods of some namespaces may request.
type Rule struct {
	// Kinds are the kinds of requests to which the rule applies (docs/kinds.md). "class" means every class, and "*"
	// means every kind.
	Kinds []string `json:"kinds" check:"kinds"`
	// Namespaces are names or patterns of namespaces: "*" matches any characters, "?" one
	// character, and "[a-c]" one character of a range.
	Namespaces []string `json:"namespaces" check:"namespaces"`
	// NamespaceSelector limits the rule to namespaces whose labels match. It has kubectl's syntax for label
	// selectors: "team=db,tier!=test". The agent reads labels through the API server (cluster.enabled). While the
	// API server does not answer, the agent uses the labels that it read last. A namespace whose labels the agent
	// has never read does not match.
	NamespaceSelector string `json:"namespaceSelector" check:"label selector"`
	// Decision is "allow", "cap" or "refuse". With "cap", the rule limits these kinds of requests: A pod may own at
	// most as many CPUs as its CPU limit, and at most as many as its CPU request. A pod gets batch resources only if
	// its QoS class is BestEffort. A container gets at most the huge pages that Kubernetes gave it. Requests of other
	// kinds cannot be capped.
	Decision string `json:"decision" check:"decision"`
	// MostCPUs is an additional limit of "cap": the highest number of CPUs that a pod may own. 0 means no such limit.
	// This key needs "assigned-cpus" in kinds, and decision "cap".
	MostCPUs int `json:"mostCPUs" check:"CPUs or 0"`
}

// Pools says which CPUs belong to the shared pools. The agent removes CPUs that a container owns from every pool.
type Pools struct {
	// Reserved is the list of CPUs that are neither in the shared pool nor in the reclaimed pool, and that no
	// container owns. If hardReserved is off, containers of pods without a class may run on reserved CPUs.
	Reserved string `json:"reserved" check:"CPU list"`
	// Shared is the CPU list of the shared pool; empty means all online CPUs except the reserved ones.
	Shared string `json:"shared" check:"CPU list"`
	// Reclaimed is the CPU list of the pool of reclaimed (batch) pods; empty means all online CPUs except the
	// reserved ones.
	Reclaimed string `json:"reclaimed" check:"CPU list"`
	// System is the CPU list of containers of class system. If it is empty, these containers get the same CPUs as
	// pods without a class.
	System string `json:"system" check:"CPU list"`
	// HardReserved lets only containers of class system run on reserved CPUs. If this key
	// is off, containers of pods without a class may also run on reserved CPUs.
	HardReserved bool `json:"hardReserved"`
}

// Placement configures the size of pools, and the policy that chooses CPUs if no scheduler has chosen them. The section
// has an effect only if the hook hooks.cpuset is on.
type Placement struct {
	// Policy is "none", "pools", "balloons" or "topology-aware". With "none" containers own CPUs that a
	// scheduler assigned, and pools have the CPUs of the section pools. With "pools" the agent
	// chooses CPUs for pods of class dedicated, shared pools are at least as large as
	// their containers' requests, and the reclaimed pool has the remaining CPUs. With
	// "balloons" containers share sets of CPUs by type (docs/balloons.md). With
	// "topology-aware" each container is placed in the smallest part of the node that can
	// hold it (docs/topology-aware.md).
	Policy string `json:"policy" default:"none" check:"none|pools|balloons|topology-aware"`
	// PolicyFile is a file with a BalloonsPolicy or TopologyAwarePolicy of
	// containers/nri-plugins. The file replaces the section balloons or topologyAware. If
	// pools.reserved or pools.shared is empty, the agent takes its CPUs from the file.
	PolicyFile string `json:"policyFile" check:"path or empty"`
	// Balloons configure the policy balloons.
	Balloons balloons.PolicyOptions `json:"balloons" only:"balloons"`
	// TopologyAware configures the policy topology-aware.
	TopologyAware TopologyAware `json:"topologyAware" only:"topology-aware"`
	// Demotion makes the kernel move cold memory of containers that have fast and slow memory (PMEM, CXL).
	Demotion Demotion `json:"demotion" only:"topology-aware"`
	// Reclaim says which CPUs the reclaimed pool has. With "together" it has every CPU that no
	// shared pool needs, and shared pools also use these CPUs. With "leftover" it has the same CPUs,
	// and shared pools do not use them. With "overlap" shared pools divide all CPUs that no container
	// owns, and reclaimed containers run on a part of these CPUs.
	Reclaim string `json:"reclaim" default:"together" only:"pools" check:"together|leftover|overlap"`
	// ReclaimedCPUs is the least number of CPUs in the reclaimed pool. If fewer CPUs are left for the reclaimed pool,
	// it also has CPUs of the default pool, which is the shared pool of pods that name no pool.
	ReclaimedCPUs int `json:"reclaimedCPUs" default:"1" only:"pools" check:"CPUs"`
	// WholeCPUs says in which pods a container without a class owns CPUs: in Guaranteed pods ("guaranteed"), in pods
	// of any QoS class ("any"), or in no pod ("never"). The container must request a whole number of CPUs, with a
	// CPU limit that is equal to the request.
	WholeCPUs string `json:"wholeCPUs" default:"never" only:"pools" check:"never|guaranteed|any"`
	// LendLSR lets reclaimed containers use the CPUs that pods of Koordinator's QoS class LSR own. This key is meant
	// for nodes where hooks.groupIdentity gives reclaimed pods a lower priority than all other pods.
	LendLSR bool `json:"lendLSR" only:"pools"`
	// Spread places containers that own CPUs in the emptiest part of the node. If this key is off, the agent places
	// these containers near each other, so that large parts of the node stay free.
	Spread bool `json:"spread" only:"pools"`
	// NearDevices prefers CPUs near the devices of a container that owns CPUs: CPUs of the same NUMA nodes. The
	// agent learns these NUMA nodes from the kubelet's PodResources API, device plugins and the kernel.
	NearDevices bool `json:"nearDevices" default:"true" only:"pools"`
	// PreferCoreType is the kind of cores that containers with CPUs of their own get first, on hybrid processors:
	// "performance", "efficient", or "any". A pod can override this key with trimtab.io/prefer-core-type.
	PreferCoreType string `json:"preferCoreType" default:"any" only:"pools" check:"any|performance|efficient"`
	// IsolatedCPUs says which containers with CPUs of their own get isolated CPUs first (isolcpus: the kernel does
	// not balance threads over isolated CPUs). With "single" these are containers that own one CPU, with "prefer"
	// all, and with "avoid" none. A pod can override this key with trimtab.io/prefer-isolated-cpus.
	IsolatedCPUs string `json:"isolatedCPUs" default:"single" only:"pools" check:"single|prefer|avoid"`
}

// TopologyAware configures the policy topology-aware. Each key means the same as the key with
// this name in the TopologyAwarePolicy of nri-plugins.
type TopologyAware struct {
	// PinMemory binds containers to the memory nodes of their CPUs when the containers are created.
	PinMemory bool `json:"pinMemory" default:"true"`
	// PreferSharedCPUs makes containers share CPUs instead of owning CPUs.
	PreferSharedCPUs bool `json:"preferSharedCPUs"`
	// PreferIsolatedCPUs gives a container that owns one CPU an isolated CPU (isolcpus), if an isolated CPU is free.
	PreferIsolatedCPUs bool `json:"preferIsolatedCPUs" default:"true"`
	// ColocatePods places the containers of a pod near each other.
	ColocatePods bool `json:"colocatePods"`
	// ColocateNamespaces places the containers of a namespace near each other.
	ColocateNamespaces bool `json:"colocateNamespaces"`
	// ReservedPoolNamespaces are names or patterns of namespaces whose containers run on the
	// CPUs of pools.reserved.
	ReservedPoolNamespaces []string `json:"reservedPoolNamespaces" default:"kube-system" check:"balloon namespaces"`
	// UnlimitedBurstable is the kind of part of the node, such as a package, in which Burstable containers without CPU
	// limit are placed. If the node has no such parts, the agent uses the next larger kind that the node has.
	UnlimitedBurstable string `json:"unlimitedBurstable" default:"package" check:"system|package|die|numa|l3cache"`
	// SchedulingClasses define how processes are scheduled. The keys namespaceSchedulingClasses and
	// podQoSSchedulingClasses refer to these classes by name.
	SchedulingClasses []class.SchedulingOptions `json:"schedulingClasses"`
	// NamespaceSchedulingClasses give containers scheduling classes by namespace. The first entry that matches applies.
	NamespaceSchedulingClasses []class.NamespaceOptions `json:"namespaceSchedulingClasses"`
	// PodQoSSchedulingClasses give scheduling classes by QoS class to containers of namespaces that no entry of
	// namespaceSchedulingClasses matches.
	PodQoSSchedulingClasses []class.QoSOptions `json:"podQoSSchedulingClasses"`
}

// Demotion makes the kernel move cold memory of containers from fast to slow memory nodes.
type Demotion struct {
	// Enabled switches demotion on. Demotion needs cgroup v2, Linux 6.16 and /sys/kernel/mm/numa/demotion_enabled.
	Enabled bool `json:"enabled"`
	// SlowPercent is how much of a container's anonymous memory should be in slow memory, in percent. The kernel
	// moves the coldest pages.
	SlowPercent int `json:"slowPercent" default:"50" check:"1..95"`
	// MebibytesPerSecond limits how much memory the kernel moves in a second from or to one memory node.
	MebibytesPerSecond int `json:"mebibytesPerSecond" default:"64" check:"1..65536"`
}

// TopologyManager says how strictly the CPUs, memory and devices of a container come
// from the same NUMA nodes. It applies to containers for which the agent chooses CPUs.
type TopologyManager struct {
	// Policy is one of the kubelet's policies, or Katalyst's "numeric". "none" only
	// prefers CPUs near memory and devices. "best-effort" chooses NUMA nodes like the
	// kubelet, and admits every container. "restricted" admits a container only if each resource is on as few
	// NUMA nodes as possible, and all resources are on the same NUMA nodes. "single-numa-node" admits a container
	// only if all its resources are on one NUMA node. With "numeric" the resources in align get the same set of
	// NUMA nodes. The NUMA nodes of every other resource are a part of this set, or include this set.
	Policy string `json:"policy" default:"none" check:"none|best-effort|restricted|single-numa-node|numeric"`
	// Scope is what must be on the same NUMA nodes: each "container", or all containers of a "pod".
	Scope string `json:"scope" default:"container" check:"container|pod"`
	// Refusal is what happens to a container that the policy does not admit. With "report" the agent chooses the
	// container's CPUs as with "best-effort", and reports a problem. With "fail" the creation of the container
	// fails with the reason, if the attachment can make creations fail.
	Refusal string `json:"refusal" default:"report" check:"report|fail"`
	// EvictAfter is the number of failed creations after which the agent evicts the pod through the API server.
	// Without an eviction, the kubelet repeats the creation without end. 0 means that the agent evicts no pod. This
	// key needs refusal "fail", cluster.enabled, and the right to evict pods (rbac.eviction of the chart).
	EvictAfter int `json:"evictAfter" check:"0..1000"`
	// PreferClosest prefers NUMA nodes near each other, if a container needs several.
	PreferClosest bool `json:"preferClosestNUMANodes"`
	// MaxNodes is the highest number of NUMA nodes of a machine on which a policy other than "none" may be used. On
	// a machine with more NUMA nodes, the agent refuses the configuration.
	MaxNodes int `json:"maxAllowableNUMANodes" default:"64" check:"1..64"`
	// Align lists the resources that the policy "numeric" puts on the same NUMA nodes:
	// "cpu", "memory", or the names of devices' resources.
	Align []string `json:"align" default:"cpu,memory" check:"resource names"`
}

// NRI configures the NRI attachment.
type NRI struct {
	// Enabled switches the attachment on.
	Enabled bool `json:"enabled" default:"true" restart:"yes"`
	// Socket is the runtime's NRI socket.
	Socket string `json:"socket" default:"/var/run/nri/nri.sock" check:"socket" restart:"yes"`
	// Name is the name with which the agent registers as a plugin at the runtime.
	Name string `json:"name" default:"trimtab" check:"plugin name" restart:"yes"`
	// Index is the place of the agent in the order in which the runtime calls its plugins: two digits, in quotes.
	Index string `json:"index" default:"90" check:"plugin index" restart:"yes"`
	// UpdateInterval is the pause between two updates of running containers in the runtime, in milliseconds. Each
	// update changes the copy of one container's resources that the runtime stores.
	UpdateInterval Milliseconds `json:"updateIntervalMilliseconds" default:"50" check:"0..60000"`
	// Cede lists fields that other NRI plugins set, such as cpu.shares. The agent does not set these fields when a
	// container is created, because a field that two plugins set makes the creation fail. If a field has a kernel
	// file, the agent writes the file when the container starts. It reports other fields as not applied.
	Cede []string `json:"cede" check:"fields"`
	// DisabledStages are the calls of the runtime in which the agent changes nothing:
	// PreCreateContainer, PreUpdateContainerResources. The agent writes values
	// of kernel files afterwards. It reports values that only a creation can set,
	// such as environment variables, as not applied.
	DisabledStages []string `json:"disabledStages" check:"PreCreateContainer|PreUpdateContainerResources" restart:"yes"`
}

// PodSpec says where the agent reads those facts about pods that the runtime does not report: requests, init
// containers and sidecars, resources of the pod as a whole. The agent can work without them: without a spec, a
// container counts as an app container.
type PodSpec struct {
	// Wait is the longest time, in milliseconds, that a pod or container waits for the pod's spec. It waits only
	// while at least one source of specs answers. With 0 it does not wait, and the agent uses the spec when the spec
	// arrives later.
	Wait Milliseconds `json:"waitMilliseconds" default:"50" check:"0..1000"`
	// Poll is the pause between two requests for the kubelet's /pods, in seconds.
	Poll Seconds `json:"pollSeconds" default:"10" check:"1..3600"`
	// Kubelet says how the agent reads specs and granted devices from the kubelet.
	Kubelet KubeletClient `json:"kubelet"`
	// APIServer watches this node's pods at the API server while the kubelet's own
	// sources do not answer. It needs cluster.enabled.
	APIServer bool `json:"apiServer" default:"true"`
}

// KubeletClient says how the agent queries the kubelet. It reads pods by the kubelet's Pods API, or by /pods if the
// kubelet has no Pods API. It reads granted devices by the kubelet's PodResources API.
type KubeletClient struct {
	// PodsSocket is the socket of the kubelet's Pods API, which Kubernetes 1.37 has, and 1.36 with the feature gate
	// PodsAPI. If it is empty, the agent does not use this API.
	PodsSocket string `json:"podsSocket" default:"/var/lib/kubelet/pods-api/pods-api.sock" check:"socket or empty"`
	// PodResourcesSocket is the socket of the kubelet's PodResources API, which reports the devices that Kubernetes
	// granted to containers. Containers may request these devices unless a rule refuses them. With authority:
	// kubelet it also reports the CPUs and memory nodes that the kubelet gave to containers. If it is empty, the
	// agent does not use this API.
	PodResourcesSocket string `json:"podResourcesSocket" default:"/var/lib/kubelet/pod-resources/kubelet.sock" check:"socket or empty"`
	// URL is where the kubelet serves /pods: "https://127.0.0.1:10250", or the read-only port
	// "http://127.0.0.1:10255", which must be on this machine. If it is empty, the agent does not use /pods.
	URL string `json:"url" check:"kubelet URL"`
	// TokenFile has a bearer token for the kubelet. The agent reads it again for each request, and sends it only
	// by https.
	TokenFile string `json:"tokenFile" check:"path or empty"`
	// CAFile has the certificates against which the agent checks the kubelet's certificate. If it is empty, the
	// agent uses the system's certificates.
	CAFile string `json:"caFile" check:"path or empty"`
	// ServerName is the name that the kubelet's certificate must have. If it is empty, the certificate must have the
	// host of url.
	ServerName string `json:"serverName" check:"host name"`
	// CertFile is a client certificate for the kubelet.
	CertFile string `json:"certFile" check:"path or empty"`
	// KeyFile is the key of certFile.
	KeyFile string `json:"keyFile" check:"path or empty"`
	// SkipVerify accepts any certificate. The agent then sends the token to any
	// server that answers at url, and uses the answer of this server.
	SkipVerify bool `json:"insecureSkipVerify"`
	// NodeName is the spec.nodeName that the kubelet's pods must have, so that the agent does not use the answer of
	// another node's kubelet. If it is empty, all pods must have the same spec.nodeName.
	NodeName string `json:"nodeName" check:"node name"`
}

// CRI has the runtime's CRI socket, and the socket of the CRI proxy.
type CRI struct {
	// Endpoint is the runtime's CRI socket: the value that the kubelet's --container-runtime-endpoint has on a node
	// without Trimtab.
	Endpoint string `json:"endpoint" default:"unix:///var/run/containerd/containerd.sock" check:"endpoint"`
	// ImageEndpoint is the socket of a separate image service; empty if the runtime also serves images, which is
	// usual. The CRI proxy serves the image service beside cri.socket, on a socket whose name ends in "-images.sock".
	ImageEndpoint string `json:"imageEndpoint" check:"endpoint or empty"`
	// Socket is where the CRI proxy serves: the kubelet is started with
	// --container-runtime-endpoint=unix:// and this path.
	Socket string `json:"socket" default:"/var/run/trimtab/cri.sock" check:"socket"`
	// DisabledStages are the kubelet's calls in which the agent changes nothing:
	// PreCreateContainer, PreUpdateContainerResources. The agent writes values
	// of kernel files afterwards. It reports values that only a creation can set,
	// such as environment variables, as not applied.
	DisabledStages []string `json:"disabledStages" check:"PreCreateContainer|PreUpdateContainerResources" restart:"yes"`
	// OCIWrapper is for nodes whose OCI runtime is trimtab-oci. On such a node, containers also get values for which
	// the CRI has no field.
	OCIWrapper OCIWrapper `json:"ociWrapper"`
}

// OCIWrapper configures what the OCI runtime wrapper trimtab-oci applies for the agent.
type OCIWrapper struct {
	// Enabled makes the CRI proxy write a file for each new container that has values for which the CRI has no
	// field. Switch this key on only if every runtime handler starts trimtab-oci. A container that another OCI
	// runtime creates does not get the values, and the agent logs that the values are missing.
	Enabled bool `json:"enabled"`
	// Directory is the directory of the decision files. Set the key "decisions" in the wrapper's own settings to the
	// same directory.
	Directory string `json:"directory" default:"/run/trimtab/oci" check:"path"`
}

// Bypass configures the bypass attachment.
type Bypass struct {
	// CgroupRoot is the kubelet's --cgroup-root, below which it creates its kubepods cgroups; empty means the root
	// of the hierarchy. The agent also finds pods in other cgroups, if the runtime lists them.
	CgroupRoot string `json:"cgroupRoot" check:"path or empty"`
	// Resync is how often, in seconds, the agent lists all pods and containers and compares them with those that it
	// knows.
	Resync Seconds `json:"resyncSeconds" default:"60" check:"5..3600"`
}

// HookServers says which external hook servers the agent calls: programs that serve the gRPC service
// runtime.v1alpha1.RuntimeHookService.
type HookServers struct {
	// Directory has a JSON file for each server, and the agent watches it. If it is empty, the
	// agent calls no server.
	Directory string `json:"directory" default:"/etc/runtime/hookserver.d" check:"path or empty"`
	// Timeout is how long one server may take for one call, in milliseconds. All
	// servers together may take at most 1500 milliseconds for one event.
	Timeout Milliseconds `json:"timeoutMilliseconds" default:"500" check:"1..1500"`
	// Socket is the socket at which the agent itself is a hook server, with attach: hooks.
	Socket string `json:"socket" default:"/var/run/trimtab/hooks.sock" check:"socket"`
	// Register is the file that announces hookServers.socket to runtime proxies. With attach: hooks the agent writes
	// this file at its start. If the key is empty, the agent writes no file.
	Register string `json:"register" default:"/etc/runtime/hookserver.d/trimtab.json" check:"path or empty"`
	// DisabledStages are the proxy's calls in which the agent changes nothing: PreCreateContainer,
	// PreUpdateContainerResources. The agent writes values of kernel files afterwards. It reports values that only a
	// creation can set as not applied. The file that the key register names does not have these calls, so that
	// proxies do not call the agent at them.
	DisabledStages []string `json:"disabledStages" check:"PreCreateContainer|PreUpdateContainerResources" restart:"yes"`
}

// PodResources says where the agent serves the kubelet's PodResources API.
type PodResources struct {
	// Socket is where the agent serves the API (v1), for root alone. Clients that mount its directory as
	// /var/lib/kubelet/pod-resources need the file name kubelet.sock. If it is empty, the agent does not serve the
	// API.
	Socket string `json:"socket" check:"socket or empty"`
}

// Cgroup says where the kernel's cgroup files are.
type Cgroup struct {
	// Root is the directory on which the cgroup file system is mounted.
	Root string `json:"root" default:"/sys/fs/cgroup" check:"path"`
	// Version is "auto", "v1" or "v2"; auto uses the mounted version.
	Version string `json:"version" default:"auto" check:"auto|v1|v2"`
}

// Keeper says how the agent keeps values in the kernel after it has written them.
type Keeper struct {
	// GiveUpAfter is how often within a minute the agent repairs one file that
	// another program writes. After that the agent leaves the file to the other program
	// and reports this. It repairs the file again after it decides another value for the
	// file, after the section keeper changes, or after it starts again. Lists of CPUs and
	// memory nodes, and partitions, keep containers apart, so the agent never leaves
	// these files to other programs. It repairs them less and less often, down to every
	// 10 s, and reports this. With 0 the agent repairs every file at once and without limit.
	GiveUpAfter int `json:"giveUpAfter" default:"30" check:"0..10000"`
}

// Paths are the files and directories of the agent.
type Paths struct {
	// Sys is the directory on which sysfs is mounted.
	Sys string `json:"sys" default:"/sys" check:"path"`
	// Dev is the directory with the node's device nodes.
	Dev string `json:"dev" default:"/dev" check:"path"`
	// CDI are the directories with the node's CDI specifications, for hooks.cdiDevices.classes and
	// for authority dra. A later directory has precedence.
	CDI []string `json:"cdi" default:"/etc/cdi,/var/run/cdi" check:"path"`
	// DRACheckpoint is the checkpoint file of the kubelet's DRA manager, which says which pods use which resource
	// claims. If the key is empty or the file is missing, the agent does not know the names of claims, and does not
	// check whether a claim belongs to the pod.
	DRACheckpoint string `json:"draCheckpoint" default:"/var/lib/kubelet/dra_manager_state" check:"path or empty"`
	// Resctrl is the directory on which resctrl is mounted.
	Resctrl string `json:"resctrl" default:"/sys/fs/resctrl" check:"path"`
	// CPU is the directory with the cpufreq and cpuidle files, where the agent sets the CPU classes
	// (placement.balloons.cpuClasses).
	CPU string `json:"cpu" default:"/sys/devices/system/cpu" check:"path"`
	// StatusSocket is the socket, for root alone, by which trimtab status, explain and events query the agent. If it
	// is empty, the agent serves no status.
	StatusSocket string `json:"statusSocket" default:"/run/trimtab/trimtab.sock" check:"socket or empty"`
	// Key is the file of the secret that signs records. The agent makes the file at its first start. The file is
	// outside of the state directory, so that records stay readable if someone deletes the state.
	Key string `json:"key" default:"/etc/trimtab/record.key" check:"path"`
	// State is the directory in which the agent stores the state that the runtime does not store for it.
	State string `json:"state" default:"/var/lib/trimtab" check:"path"`
}

// HTTP configures the metrics page, the probes and the web page of the node.
type HTTP struct {
	// Address is where /metrics, /healthz and /readyz are served, e.g.
	// "127.0.0.1:9464". If it is empty, the agent serves none of them. Every client that can
	// reach the port can read the pages, so the default is empty.
	Address string `json:"address" check:"address or empty"`
	// Page also serves the web page of the node at /page/ of the address: the map of the node's CPUs with the names of
	// their pods, and the reasons for the agent's decisions. The page only reads. Everybody who reaches the port can
	// see it.
	Page bool `json:"page"`
}

// Log configures the agent's log.
type Log struct {
	// Level is the least severe level that is logged.
	Level string `json:"level" default:"info" check:"debug|info|warn|error"`
	// Format is text for users or json for programs.
	Format string `json:"format" default:"text" check:"text|json"`
}

// Cluster says what the agent does through the Kubernetes API server.
type Cluster struct {
	// Enabled switches the other keys of this section on. If it is off, the agent does not use the API server.
	Enabled bool `json:"enabled"`
	// Kubeconfig is the file with the API server's address and the agent's credentials. If it is empty, the agent
	// uses the service account of its pod.
	Kubeconfig string `json:"kubeconfig" check:"path or empty"`
	// NodeName is the name of this node's Node object. If it is empty, the agent uses the environment variable
	// NODE_NAME, or else the host name.
	NodeName string `json:"nodeName" check:"node name"`
	// Namespace is the namespace of the agent's ConfigMaps. If it is empty, the agent uses the environment variable
	// POD_NAMESPACE, or else the namespace of the service account.
	Namespace string `json:"namespace" check:"namespace or empty"`
	// Events writes Kubernetes events on pods whose requests were refused or degraded,
	// or whose values are not in force.
	Events bool `json:"events" default:"true"`
	// NodeCondition sets the condition TrimtabReady of the Node, and keeps it up to date.
	NodeCondition bool `json:"nodeCondition" default:"true"`
	// PodAnnotation writes class, CPUs and memory nodes of each pod into its annotation
	// trimtab.io/placement. If this key is on, the chart lets the agents change pods of their node.
	PodAnnotation bool `json:"podAnnotation"`
	// Topology says what the agent publishes about NUMA nodes, for schedulers.
	Topology TopologyReport `json:"topology"`
	// Koordinator says what the agent publishes for Koordinator's manager and scheduler. It is for nodes without
	// koordlet, which writes these objects itself.
	Koordinator KoordinatorReport `json:"koordinator"`
	// Config says which part of the configuration the agent reads from the API server.
	Config ClusterConfig `json:"config"`
}

// KoordinatorReport says what the agent publishes for Koordinator's manager and scheduler.
type KoordinatorReport struct {
	// NodeMetric publishes how much CPU and memory the node and its pods use, as
	// NodeMetric of the node, once a minute or as often as that object's spec says. If
	// this key is on, the chart lets the agents write the object.
	NodeMetric bool `json:"nodeMetric"`
	// Device publishes the node's NVIDIA GPUs and RDMA cards as Device of the node. If
	// the Node has no label nvidia.com/gpu.memory, no pod gets a GPU by this object. If
	// this key is on, the chart lets the agents write the object.
	Device bool `json:"device"`
}

// ClusterConfig says which part of the configuration the agent reads from the API server.
type ClusterConfig struct {
	// Enabled reads the ConfigMaps with the label trimtab.io/config: trimtab-cluster, trimtab-group-NAME and
	// trimtab-node-NODE. Each of them overrides the node's file and the ConfigMaps before it in this list.
	Enabled bool `json:"enabled" default:"true"`
	// AlsoRead lists other agents whose objects for this node are also read; ConfigMaps
	// override these objects. With "koordinator" the agent reads the NodeSLO, and annotations of
	// the Node and of its NodeResourceTopology. With "nri-plugins" the agent reads BalloonsPolicies
	// and TopologyAwarePolicies only to name them in trimtab status: they have no effect.
	AlsoRead []string `json:"alsoRead" check:"koordinator|nri-plugins"`
}

// TopologyReport says what the agent publishes about the node's NUMA nodes, for schedulers.
type TopologyReport struct {
	// Enabled publishes a NodeResourceTopology of the node, if the cluster has this
	// CustomResourceDefinition and no other program writes the object.
	Enabled bool `json:"enabled" default:"true"`
	// Policy is how strictly a container's CPUs and memory come from one NUMA node. The
	// agent reports this policy to schedulers. With "single-numa-node" the scheduler plugin
	// NodeResourceTopologyMatch sends a Guaranteed pod to this node only if it fits into
	// one NUMA node. With authority: kubelet, write the kubelet's topologyManagerPolicy here.
	Policy string `json:"policy" default:"best-effort" check:"none|best-effort|restricted|single-numa-node"`
	// Scope is what must fit into one NUMA node: each "container", or the whole "pod".
	Scope string `json:"scope" default:"container" check:"container|pod"`
	// Koordinator adds the annotations that Koordinator's scheduler reads. This key is for
	// nodes without koordlet, which writes these annotations itself.
	Koordinator bool `json:"koordinator"`
	// Katalyst publishes the facts of the NodeResourceTopology also as CustomNodeResource of the node, if the cluster
	// has this CustomResourceDefinition. This key is for nodes without Katalyst's agent, which writes the object
	// itself. If this key is on, the chart lets the agents write the object.
	Katalyst bool `json:"katalyst"`
}
