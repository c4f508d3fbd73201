package events

// Reason is the code of an event: its field "reason", for programs that select events.
type Reason string

// The reasons. The meaning of a code never changes.
const (
	// RequestMalformed and the next three are about a pod's labels and annotations.
	RequestMalformed Reason = "RequestMalformed" // the agent cannot read the value of a label or annotation
	RequestRefused   Reason = "RequestRefused"   // the agent does not grant a well-formed request
	RequestUnserved  Reason = "RequestUnserved"  // a request has no effect on this node
	RequestDegraded  Reason = "RequestDegraded"  // another label or annotation contradicts a request, or the agent serves it only in part
	// HookFailed and the next four are about failures, refused containers and evicted pods.
	HookFailed        Reason = "HookFailed"        // a hook or hook server failed
	ContainerRejected Reason = "ContainerRejected" // the agent refused the creation of a container
	CreationFailed    Reason = "CreationFailed"    // a creation failed in the runtime after the agent's answer
	PodEvicted        Reason = "PodEvicted"        // the agent evicted the pod
	EvictionFailed    Reason = "EvictionFailed"    // the API server did not evict the pod
	// ValueRefused and the next five are about values that the agent decided and that are not in force.
	ValueRefused    Reason = "ValueRefused"    // the kernel refused a value, or the path of the cgroup is unknown
	ValueNotCarried Reason = "ValueNotCarried" // the present attachment cannot set a value
	ValueTooLate    Reason = "ValueTooLate"    // only a creation can set a value, and the container was created without it
	ValueContested  Reason = "ValueContested"  // another program writes a value repeatedly
	CgroupMissing   Reason = "CgroupMissing"   // the cgroup of a running container is not in the tree at cgroup.root
	WouldDiffer     Reason = "WouldDiffer"     // in mode observe, the node has another value than the agent decided
	// ConfigurationRefused is about a ConfigMap.
	ConfigurationRefused Reason = "ConfigurationRefused" // the configuration in the ConfigMap is invalid
)

// ReasonRow describes a reason, for the docs.
type ReasonRow struct {
	Reason Reason
	// About is the kind of object that has the event.
	About string
	// Means is the meaning of the reason.
	Means string
	// Do is what the user can do.
	Do string
}

// ReasonRows returns the table of all reasons.
func ReasonRows() []ReasonRow {
	return []ReasonRow{
		{RequestMalformed, "Pod", "The agent cannot read the value of a label or annotation. The pod runs without this label or annotation.", "Correct the value, which `trimtab explain` shows."},
		{RequestRefused, "Pod", "The agent does not grant a well-formed request: a rule of `authorization` refuses it, or the node does not have enough.", "Read the rule that the message names (docs/authorization.md), or run the pod on another node."},
		{RequestUnserved, "Pod", "The request has no effect on this node: the request's hook is disabled, or the agent does not support the request's key.", "Enable the hook (`trimtab hooks`), or remove the request from the pod."},
		{RequestDegraded, "Pod", "The agent serves the request only in part, or a label or annotation of another system contradicts the request.", "Read the message. Often the pod has contradictory labels or annotations for two systems."},
		{HookFailed, "Pod", "A hook or hook server failed, and the values that it decides are missing.", "Read the failure in the log of the agent. `trimtab status` shows the hook servers."},
		{ContainerRejected, "Pod", "The agent refused the creation of a container, because of `strict`, `failurePolicy`, a rule, or `topologyManager.refusal`.", "Correct what the message names."},
		{CreationFailed, "Pod", "The creation of a container failed in the runtime after the agent had answered. A usual cause is another NRI plugin that sets the same field.", "Add the field that the message names to `nri.cede`, or configure the other plugin not to set the field. The kubelet's event names the plugin."},
		{PodEvicted, "Pod", "The agent evicted the pod, because the topology manager refused it as often as `topologyManager.evictAfter` says.", "Run the pod on a node with more free resources on one NUMA node. Publish the node's NUMA nodes for the scheduler (docs/reports.md)."},
		{EvictionFailed, "Pod", "The API server did not evict a pod that the topology manager refused too often. The agent tries again at the next refusal.", "Read the message. Usual causes are missing rights of the agent (`rbac.eviction` of the chart) and the pod's disruption budget."},
		{ValueRefused, "Pod", "The kernel refused a value that the agent decided, or the agent does not know the path of the cgroup.", "`trimtab explain` shows the file, the value and the error. `trimtab doctor` shows what the kernel does not support."},
		{ValueNotCarried, "Pod", "The present attachment of the agent to the runtime cannot set a value that the agent decided.", "See docs/parity.md for what each attachment can set."},
		{ValueTooLate, "Pod", "The agent decided a value that can only be set at the creation of a container, and the container was created without the value.", "Delete the pod, so that it is created again."},
		{ValueContested, "Pod", "Another program writes a value repeatedly, and the agent does not write this value any more.", "Find the other program (`trimtab status`), and configure one of the two programs not to write the value."},
		{CgroupMissing, "Pod", "A container runs, but its cgroup is not in the tree at `cgroup.root`, so none of the agent's values for the container is in force.", "Mount the host's cgroup tree (docs/install.md)."},
		{WouldDiffer, "Pod", "The agent runs with `mode: observe`, in which it sets no values, and the node has another value than the agent decided.", "Compare the two values with `trimtab observe`."},
		{ConfigurationRefused, "the ConfigMap", "The configuration in the ConfigMap is invalid, and the last valid configuration stays in force.", "Correct what the message names."},
	}
}
