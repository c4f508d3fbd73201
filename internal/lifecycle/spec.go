package lifecycle

// Source names where a fact about a pod comes from that the runtime does not
// report. Sources form a chain: an earlier one has priority.
type Source string

// The sources, most trusted first.
const (
	FromPodsAPI    Source = "kubelet Pods API"
	FromKubelet    Source = "kubelet /pods"
	FromAPIServer  Source = "API server"
	FromAnnotation Source = "annotation"
	FromRuntime    Source = "shares and limits"
	FromNothing    Source = "nothing"
)

// FromPodResources is the kubelet's PodResources API. It reports devices, and is
// not in the chain.
const FromPodResources Source = "kubelet PodResources API"

// Sources returns the chain, most trusted first.
func Sources() []Source {
	return []Source{FromPodsAPI, FromKubelet, FromAPIServer, FromAnnotation, FromRuntime, FromNothing}
}

// ContainerKind is the role of a container in its pod.
type ContainerKind int

// The kinds. A container that no source knows counts as App.
const (
	App       ContainerKind = iota
	Init                    // runs to its end before the next starts
	Sidecar                 // an init container that is restarted always
	Ephemeral               // added to a running pod, has no resources
)

// String returns the name of the kind.
func (k ContainerKind) String() string {
	return [...]string{"app", "init", "sidecar", "ephemeral"}[min(max(k, 0), Ephemeral)]
}

// Names of resources in Amounts. CPU counts milli-CPUs, all others what a
// quantity of Kubernetes counts, rounded up.
const (
	ResourceCPU    = "cpu"
	ResourceMemory = "memory"
)

// Amounts are amounts of resources by name.
type Amounts map[string]int64

// PodSpec is what a pod's spec has beyond the runtime's report. It is replaced, not
// changed.
type PodSpec struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"`
	// QoS is the QoS class as Kubernetes names it; "" if it is not known.
	QoS string `json:"qos,omitempty"`
	// Containers are init containers and sidecars in the order they start,
	// then app containers, then ephemeral ones.
	Containers []ContainerSpec `json:"containers"`
	// Overhead is what the runtime class costs besides the containers.
	Overhead Amounts `json:"overhead,omitempty"`
	// Requests and Limits are those of the pod as a whole.
	Requests Amounts `json:"requests,omitempty"`
	Limits   Amounts `json:"limits,omitempty"`
	From     Source  `json:"from"`
	// Meta are those labels and annotations of the pod that are read again while it
	// lives; nil if no source has them.
	Meta *PodMeta `json:"meta,omitempty"`
	// Remembered: an earlier agent on this node got it, and this one not yet.
	Remembered bool `json:"-"`
}

// PodMeta are the Editable labels and annotations of a pod as they are now.
type PodMeta struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Whole: it has keys of every dialect. Files of older agents have rubik's keys
	// alone.
	Whole bool `json:"whole,omitempty"`
}

// editable are the keys whose edits count while their pod runs, and whether older
// agents kept them. It is a fixed list, so that a pod's author cannot make the
// agent keep many. Package intent says what an edit of each does, and its tests
// compare the two.
var editable = map[string]bool{
	"volcano.sh/preemptable": true, "volcano.sh/cache-limit": true, "volcano.sh/quota-burst-time": true, "volcano.sh/blkio-limit": true,

	"koordinator.sh/qosClass": false, "node.koordinator.sh/extended-resource-spec": false, "koordinator.sh/cpuQOS": false,
	"koordinator.sh/blkioQOS": false, "node.koordinator.sh/resctrl": false, "koordinator.sh/core-sched-group-id": false,
	"koordinator.sh/core-sched-policy": false, "koordinator.sh/oom-score-adj": false, "koordinator.sh/oom-score-adj-spec": false,

	"katalyst.kubewharf.io/qos_level": false,

	"trimtab.io/unset-cpu-quota": false, "trimtab.io/hugepage-limits": false, "trimtab.io/cpu-env": false,
	"trimtab.io/blockio-class": false, "trimtab.io/rdt-class": false,
}

// MaxText limits one label or annotation that is read, in bytes. The API server
// accepts 256 KiB; schedulers write some 3 KiB for a node of 1,024 CPUs.
const MaxText = 16 << 10

// Editable reports whether an edit of a label or annotation counts while its pod
// runs.
func Editable(key string) bool {
	_, is := editable[key]
	return is
}

// Has reports whether the present value of a key is known, even if the pod lacks
// the key.
func (m *PodMeta) Has(key string) bool {
	early, is := editable[key]
	return m != nil && is && (m.Whole || early)
}

// ContainerSpec is what a pod's spec says of one container.
type ContainerSpec struct {
	Name     string        `json:"name"`
	Kind     ContainerKind `json:"kind"`
	Requests Amounts       `json:"requests,omitempty"`
	Limits   Amounts       `json:"limits,omitempty"`
}

// Container returns the spec of a container by name. A pod has no two of one
// name.
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
