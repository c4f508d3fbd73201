package events

// Reason is the code of an event: its field "reason", for programs that select events.
type Reason string

// The reasons. The meaning of a code never changes.
const (
	// RequestMalformed and the next three are about a pod's labels and annotations.
	RequestMalformed  Reason = "RequestMalformed"
	RequestRefused    Reason = "RequestRefused"
	RequestUnserved   Reason = "RequestUnserved"
	RequestDegraded   Reason = "RequestDegraded"
	HookFailed        Reason = "HookFailed"
	ContainerRejected Reason = "ContainerRejected"
	CreationFailed    Reason = "CreationFailed"
	PodEvicted        Reason = "PodEvicted"
	EvictionFailed    Reason = "EvictionFailed"
	// ValueRefused and the next five are about decided values that are not in force.
	ValueRefused    Reason = "ValueRefused"
	ValueNotCarried Reason = "ValueNotCarried"
	ValueTooLate    Reason = "ValueTooLate"
	ValueContested  Reason = "ValueContested"
	CgroupMissing   Reason = "CgroupMissing"
	WouldDiffer     Reason = "WouldDiffer"
	// ConfigurationRefused is about a ConfigMap.
	ConfigurationRefused Reason = "ConfigurationRefused"
)

// ReasonRow describes a reason, for the docs.
type ReasonRow struct {
	Reason Reason
	// About is the kind of object that has the event.
	About string
	Means string
	// Do says what the user can do about it.
	Do string
}

// ReasonRows returns the table of all reasons.
func ReasonRows() []ReasonRow {
	return []ReasonRow{
		{RequestMalformed, "Pod", "A label or annotation cannot be read. The pod runs as if it did not have it.", "Correct the value; `trimtab explain` shows it."},
		{RequestRefused, "Pod", "The agent does not grant a well-formed request: a rule of `authorization` refuses it, or the node does not have enough.", "Read the rule that the message names (docs/authorization.md), or run the pod on another node."},
		{RequestUnserved, "Pod", "Nothing on this node serves the request: its hook is off, or the key is not supported.", "Switch the hook on (`trimtab hooks`), or leave the request out."},
		{RequestDegraded, "Pod", "The agent serves the request only in part, or another dialect contradicts it.", "Read the message; often two dialects disagree."},
		{HookFailed, "Pod", "A hook or hook server failed, and its values are missing.", "`trimtab status` shows hook servers, the log shows the failure."},
		{ContainerRejected, "Pod", "The agent refused the creation of a container, because of `strict`, `failurePolicy`, a rule, or `topologyManager.refusal`.", "Correct what the message names."},
		{CreationFailed, "Pod", "The runtime failed the creation of a container after the agent's answer, as when another NRI plugin sets the same field.", "List the field that the message names in `nri.cede`, or remove it from the other plugin. The kubelet's event names the plugin."},
		{PodEvicted, "Pod", "The agent evicted the pod, because the topology manager refused it as often as `topologyManager.evictAfter` says.", "Run it on a node with more room on one NUMA node; publish the node's NUMA nodes for the scheduler (docs/reports.md)."},
		{EvictionFailed, "Pod", "The API server did not evict a pod that the topology manager refused too often. The agent tries again at the next refusal.", "Read the message: the agent's rights (`rbac.eviction` of the chart), or the pod's disruption budget."},
		{ValueRefused, "Pod", "The kernel refused a decided value, or the agent does not know the cgroup's path.", "`trimtab explain` shows file, value and error; `trimtab doctor` shows what the kernel lacks."},
		{ValueNotCarried, "Pod", "The attachment in use cannot set a decided value.", "See docs/parity.md for what each attachment can set."},
		{ValueTooLate, "Pod", "A decided value can only be set when the container is created, and the container was created without it.", "Delete the pod, so that it is created again."},
		{ValueContested, "Pod", "Another program keeps writing a value, and the agent left the value to that program.", "Find the other program (`trimtab status`), or cede the field to it."},
		{CgroupMissing, "Pod", "A container runs, but its cgroup is not in the tree at `cgroup.root`, so none of its values is in force.", "Mount the host's cgroup tree (docs/install.md)."},
		{WouldDiffer, "Pod", "The agent runs with `mode: observe` and would have set another value than the node has.", "Compare the two with `trimtab observe`; nothing was changed."},
		{ConfigurationRefused, "the ConfigMap", "A configuration is invalid; the last valid one stays in force.", "Correct what the message names."},
	}
}
