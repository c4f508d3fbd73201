package lifecycle

// Source names where something came from that the runtime does not tell of a
// pod. They are the rungs of a ladder: what an earlier one knows stands.
type Source string

// The rungs, most trusted first.
const (
	FromPodsAPI    Source = "kubelet Pods API"
	FromKubelet    Source = "kubelet /pods"
	FromAPIServer  Source = "API server"
	FromAnnotation Source = "annotation"
	FromRuntime    Source = "shares and limits"
	FromNothing    Source = "nothing"
)

// FromPodResources is the kubelet's PodResources API. It tells of devices, and is
// no rung.
const FromPodResources Source = "kubelet PodResources API"

// Sources returns the rungs, most trusted first.
func Sources() []Source {
	return []Source{FromPodsAPI, FromKubelet, FromAPIServer, FromAnnotation, FromRuntime, FromNothing}
}

// ContainerKind is what a container is to its pod.
type ContainerKind int

// The kinds. A container nothing is known of counts as App.
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

// PodSpec is what a pod's spec says beyond what the runtime tells of it. It is
// replaced, not changed.
type PodSpec struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"`
	// QoS is the QoS class as Kubernetes names it; "" where it is not told.
	QoS string `json:"qos,omitempty"`
	// Containers are init containers and sidecars in the order they start,
	// then app containers, then ephemeral ones.
	Containers []ContainerSpec `json:"containers"`
	// Overhead is what the runtime class costs beside the containers.
	Overhead Amounts `json:"overhead,omitempty"`
	// Requests and Limits are those of the pod as a whole.
	Requests Amounts `json:"requests,omitempty"`
	Limits   Amounts `json:"limits,omitempty"`
	From     Source  `json:"from"`
	// Meta is what of the pod's labels and annotations is read anew while it
	// lives, as they are now; nil where nobody told them.
	Meta *PodMeta `json:"meta,omitempty"`
	// Remembered: told to an earlier agent on this node, and to this one not
	// yet.
	Remembered bool `json:"-"`
}

// PodMeta is a part of a pod's labels and annotations as they are now: those that
// are Editable.
type PodMeta struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Whole: keys of every dialect are there. What agents kept before that was so
	// has rubik's keys alone.
	Whole bool `json:"whole,omitempty"`
}

// editable are the keys whose edits count while their pod runs, and whether older
// agents kept them. It is a list, so that a pod's author cannot have the agent keep
// many; package intent says what an edit of each does, and its tests compare the two.
var editable = map[string]bool{
	"volcano.sh/preemptable": true, "volcano.sh/cache-limit": true, "volcano.sh/quota-burst-time": true, "volcano.sh/blkio-limit": true,

	"koordinator.sh/qosClass": false, "node.koordinator.sh/extended-resource-spec": false, "koordinator.sh/cpuQOS": false,
	"koordinator.sh/blkioQOS": false, "node.koordinator.sh/resctrl": false, "koordinator.sh/core-sched-group-id": false,
	"koordinator.sh/core-sched-policy": false, "koordinator.sh/oom-score-adj": false, "koordinator.sh/oom-score-adj-spec": false,

	"katalyst.kubewharf.io/qos_level": false,

	"trimtab.io/unset-cpu-quota": false, "trimtab.io/hugepage-limits": false, "trimtab.io/cpu-env": false,
	"trimtab.io/blockio-class": false, "trimtab.io/rdt-class": false,
}

// MaxText bounds one label or annotation that is read, in bytes. The API server
// accepts 256 KiB; schedulers write some 3 KiB for a node of 1,024 CPUs.
const MaxText = 16 << 10

// Editable reports whether an edit of a label or annotation counts while its pod
// runs.
func Editable(key string) bool {
	_, is := editable[key]
	return is
}

// Has reports whether the labels and annotations say what a key is now, also where
// they do not have it.
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
