package lifecycle

// HookServerAnswer has the answers of hook servers and resource plugins for one container or pod. The agent gathers the
// answers before it decides an event.
type HookServerAnswer struct {
	// Values are for the event's container. The field Why of each value names the hook server that answered it.
	Values []Value
	// Problems describe errors in the answers.
	Problems []Problem
	// Labels and Annotations are added to the labels and annotations of the pod.
	Labels      map[string]string
	Annotations map[string]string
	// Hints are the NUMA hints of resource plugins for the event's container, sorted by resource.
	Hints []ResourceHints `json:",omitempty"`
}

// ResourcePluginName is the value of Hook in a Reason or Problem that comes from a resource plugin. Reason.Source then
// names the plugin's resource.
const ResourcePluginName = "resourceplugin"

// IsExternal reports whether the value of Hook in a Reason or Problem stands for hook servers or resource plugins.
func IsExternal(hook string) bool { return hook == HookServerName || hook == ResourcePluginName }

// ResourceHints are the sets of NUMA nodes from which a resource plugin can allocate a resource.
type ResourceHints struct {
	Resource string
	// Hints are the possible sets. A nil list means that the plugin has no preference. An empty list that
	// is not nil means that the plugin cannot allocate the resource.
	Hints []NUMAHint
}

// NUMAHint is one set of NUMA nodes, by id. An empty set means that all NUMA nodes are suitable.
type NUMAHint struct {
	Nodes     []int `json:",omitempty"`
	Preferred bool  `json:",omitempty"`
}

// Affinity has the NUMA nodes that the topology manager chose for a container.
type Affinity struct {
	NUMAHint

	// Refused is the reason why the topology manager's policy does not admit the container; "" if the policy
	// admits the container.
	Refused string
	// ByResource has the hints that differ from the embedded NUMAHint, by the name of the resource. Only the
	// policy numeric has such hints.
	ByResource map[string]NUMAHint
}

// HintFor returns the hint of one resource.
func (a Affinity) HintFor(resource string) NUMAHint {
	if h, own := a.ByResource[resource]; own {
		return h
	}
	return a.NUMAHint
}

// HookServerName is the value of Hook in a Reason or Problem that comes from a hook server. Reason.Source then names
// the server's file.
const HookServerName = "hookserver"

// Empty reports whether the answer has no values, problems, labels or annotations. It does not count Hints.
func (o HookServerAnswer) Empty() bool {
	return len(o.Values)+len(o.Problems)+len(o.Labels)+len(o.Annotations) == 0
}
