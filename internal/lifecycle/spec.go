package lifecycle

// Source is the origin of a fact about a pod, such as the pod's spec or a container's request. The sources form a
// chain: if two sources report a fact, the earlier source counts.
type Source string

// The sources, most trusted first.
const (
	FromPodsAPI    Source = "kubelet Pods API"
	FromKubelet    Source = "kubelet /pods"
	FromAPIServer  Source = "API server"
	FromAnnotation Source = "annotation"
	FromRuntime    Source = "shares and limits" // the CPU shares and the limits in the runtime's request
	FromNothing    Source = "nothing"           // no source reports the fact
)

// FromPodResources is the kubelet's PodResources API. It is not in the chain, because it reports devices,
// CPUs and memory nodes, and no pod specs.
const FromPodResources Source = "kubelet PodResources API"

// Sources returns the chain of sources, most trusted first.
func Sources() []Source {
	return []Source{FromPodsAPI, FromKubelet, FromAPIServer, FromAnnotation, FromRuntime, FromNothing}
}

// ContainerKind is the role of a container in its pod.
type ContainerKind int

// The kinds. A container of unknown kind counts as App.
const (
	App       ContainerKind = iota
	Init                    // an init container that ends before the next container starts
	Sidecar                 // an init container with restartPolicy Always
	Ephemeral               // added to a running pod; has no resources
)

// String returns the name of the kind.
func (k ContainerKind) String() string {
	return [...]string{"app", "init", "sidecar", "ephemeral"}[min(max(k, 0), Ephemeral)]
}

// Names of resources in Amounts. The amount of CPU is in milli-CPUs. The amounts of all other resources
// are in whole units, rounded up.
const (
	ResourceCPU    = "cpu"
	ResourceMemory = "memory"
)

// Amounts are amounts of resources by name.
type Amounts map[string]int64

// PodSpec is the part of a pod's spec that the agent needs and the runtime does not report. It is
// immutable.
type PodSpec struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"`
	// QoS is the QoS class as Kubernetes names it; "" if unknown.
	QoS string `json:"qos,omitempty"`
	// Containers are init containers and sidecars in the order in which they start, then app containers, then
	// ephemeral containers.
	Containers []ContainerSpec `json:"containers"`
	// Overhead is the overhead of the runtime class.
	Overhead Amounts `json:"overhead,omitempty"`
	// Requests and Limits are the pod-level resources.
	Requests Amounts `json:"requests,omitempty"`
	Limits   Amounts `json:"limits,omitempty"`
	From     Source  `json:"from"` // the source of this spec
	// Meta has the current values of the pod's editable labels and annotations (see IsEditable); nil if no
	// source reports them.
	Meta *PodMeta `json:"meta,omitempty"`
	// FromStateFile means that the spec comes from the state file of an earlier run of the agent, and that no
	// source has confirmed the spec yet.
	FromStateFile bool `json:"-"`
}

// PodMeta are the current values of a pod's editable labels and annotations (see IsEditable).
type PodMeta struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// HasAllKeys means that a key that is missing in the maps is missing on the pod, too. It is false if an older
	// version of the agent stored the maps: that version stored only the keys of rubik.
	HasAllKeys bool `json:"whole,omitempty"`
}

// editableKeys has the keys of the labels and annotations whose edits take effect while the pod runs. The value
// is true for the keys that older versions of the agent stored. The list is fixed, so that no pod can make the
// agent store many keys. The tests of package intent compare the list with the declarations of that package.
var editableKeys = map[string]bool{
	"volcano.sh/preemptable": true, "volcano.sh/cache-limit": true, "volcano.sh/quota-burst-time": true, "volcano.sh/blkio-limit": true,

	"koordinator.sh/qosClass": false, "node.koordinator.sh/extended-resource-spec": false, "koordinator.sh/cpuQOS": false,
	"koordinator.sh/blkioQOS": false, "node.koordinator.sh/resctrl": false, "koordinator.sh/core-sched-group-id": false,
	"koordinator.sh/core-sched-policy": false, "koordinator.sh/oom-score-adj": false, "koordinator.sh/oom-score-adj-spec": false,

	"katalyst.kubewharf.io/qos_level": false,

	"trimtab.io/unset-cpu-quota": false, "trimtab.io/hugepage-limits": false, "trimtab.io/cpu-env": false,
	"trimtab.io/blockio-class": false, "trimtab.io/rdt-class": false,
}

// MaxValueBytes is the maximum length of the value of a label or annotation that the agent reads. The longest useful
// values are those of schedulers, about 3 KiB for a node with 1,024 CPUs. The API server accepts up to 256 KiB.
const MaxValueBytes = 16 << 10

// IsEditable reports whether an edit of the label or annotation with this key takes effect while the pod runs.
func IsEditable(key string) bool {
	_, is := editableKeys[key]
	return is
}

// Has reports whether the maps tell the current state of a key. If Has returns true for a key and the maps do not
// contain the key, the pod has no such label or annotation.
func (m *PodMeta) Has(key string) bool {
	storedByOlder, editable := editableKeys[key]
	return m != nil && editable && (m.HasAllKeys || storedByOlder)
}

// ContainerSpec has the spec of one container of a pod.
type ContainerSpec struct {
	Name     string        `json:"name"`
	Kind     ContainerKind `json:"kind"`
	Requests Amounts       `json:"requests,omitempty"`
	Limits   Amounts       `json:"limits,omitempty"`
}

// Container returns the spec of a container by name.
func (p *PodSpec) Container(name string) (ContainerSpec, bool) {
	if p != nil {
		for _, c := range p.Containers {
			if c.Name == name {
				return c, true
			}
		}
	}
	return ContainerSpec{}, false
}
