package lifecycle

// HookServerAnswer has the answers of hook servers for one container or pod. The conductor
// gathers it before the engine decides the event.
type HookServerAnswer struct {
	// Values are for the event's container. The reason of each names its hook server.
	Values []Value
	// Problems describe errors in the answers.
	Problems []Problem
	// Labels and Annotations are added to the pod's own.
	Labels      map[string]string
	Annotations map[string]string
	// Hints are those of resource plugins for the event's container, sorted by resource.
	Hints []ResourceHints `json:",omitempty"`
}

// ResourcePluginName is the hook name in reasons and problems of resource plugins. The source next
// to it names the plugin's resource.
const ResourcePluginName = "resourceplugin"

// IsExternal reports whether a reason or problem comes from a program outside of the agent.
func IsExternal(hook string) bool { return hook == HookServerName || hook == ResourcePluginName }

// ResourceHints say on which NUMA nodes a resource of a resource plugin can be had.
type ResourceHints struct {
	Resource string
	// Hints without any element have no preference if the list is nil. Otherwise the resource
	// cannot be had.
	Hints []NUMAHint
}

// NUMAHint is one set of NUMA nodes, by id. An empty set says that nodes do not matter.
type NUMAHint struct {
	Nodes     []int `json:",omitempty"`
	Preferred bool  `json:",omitempty"`
}

// Affinity is what the topology manager chose for a container.
type Affinity struct {
	NUMAHint

	// Refused is why its policy does not admit the container; "" if it does.
	Refused string
	// Each has the hints of resources by name, if they differ (policy numeric).
	Each map[string]NUMAHint
}

// Of returns the hint of one resource.
func (a Affinity) Of(resource string) NUMAHint {
	if h, own := a.Each[resource]; own {
		return h
	}
	return a.NUMAHint
}

// HookServerName is the hook name in reasons and problems of hook servers. The source next to
// it names the server's file.
const HookServerName = "hookserver"

// Empty reports whether the answer has neither values nor problems.
func (o HookServerAnswer) Empty() bool {
	return len(o.Values)+len(o.Problems)+len(o.Labels)+len(o.Annotations) == 0
}
