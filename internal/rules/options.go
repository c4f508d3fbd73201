package rules

// RuleOptions is one rule in the configuration.
type RuleOptions struct {
	// Name names the rule in explain, status and messages: small letters, digits
	// and -.
	Name string `json:"name" check:"rule name"`
	// Match is a CEL expression of type bool over pod and container. The rule applies if the expression is true. If the
	// expression reads a missing label or annotation, it is false.
	Match string `json:"match" check:"expression"`
	// Set has the values that the rule sets.
	Set []SettingOptions `json:"set"`
	// Class is the class that the pod gets; empty means that the rule does not change the class. If a rule sets class,
	// pool or numa, its match may use only the pod.
	Class string `json:"class" check:"|system|dedicated|shared|reclaimed"`
	// Pool is the name of the shared or system pool that the pod gets; empty means that the rule does not change the
	// pool.
	Pool string `json:"pool" check:"pool or empty"`
	// NUMA binds the pod to NUMA nodes.
	NUMA NUMAOptions `json:"numa"`
	// UnlessAsked leaves class, pool and numa unchanged if the pod itself requests one of them, or if an earlier rule
	// has set one of them. If unlessAsked is off, the rule overrides the pod's annotations and labels.
	UnlessAsked bool `json:"unlessAsked"`
	// Refuse is the message with which the agent refuses to create the container; empty means no refusal.
	Refuse string `json:"refuse" check:"message"`
	// Required refuses containers for which the agent cannot evaluate the rule. If required is off, the agent reports
	// the error and creates the container without the rule.
	Required bool `json:"required"`
}

// SettingOptions is one value that a rule sets.
type SettingOptions struct {
	// Field is the field to set, with the name that explain prints.
	Field string `json:"field" check:"rule fields"`
	// Key names the entry, if the field has several entries: the name of a variable, the path of a mount in the
	// container, the path of a device of the node, the size of huge pages, or the name of a cgroup v2 file.
	Key string `json:"key" check:"text"`
	// Value is a constant: a number, a text, or the source of a mount.
	Value string `json:"value" check:"text"`
	// ValueExpression is a CEL expression that computes the value, in place of the constant in value. Its type must be
	// int for fields that are numbers, and string for all other fields.
	ValueExpression string `json:"valueExpression" check:"expression or empty"`
	// Options are the options of a mount; an empty list means "bind", "ro", "nosuid", "nodev".
	Options []string `json:"options" check:"mount options"`
	// Scope says what gets the value: "container", or "pod" for kernel files of the pod.
	Scope string `json:"scope" default:"container" check:"container|pod"`
}

// NUMAOptions bind a pod to NUMA nodes.
type NUMAOptions struct {
	// Bind binds CPUs and memory of the pod to the same nodes, as few as possible. Each of the other keys implies bind.
	Bind bool `json:"bind"`
	// Count is the exact number of nodes; 0 means as few as possible.
	Count int `json:"count" check:"0..1024"`
	// Nodes are the exact nodes, as a list such as "0-1"; empty means any.
	Nodes string `json:"nodes" check:"node list"`
	// Exclusive gives the pod whole nodes, with all their free CPUs and memory.
	Exclusive bool `json:"exclusive"`
	// Even takes the same number of CPUs from each node.
	Even bool `json:"even"`
	// WholeCores takes no core on which another pod owns a thread.
	WholeCores bool `json:"wholeCores"`
	// BySocket uses no more sockets than the CPUs need.
	BySocket bool `json:"bySocket"`
	// Alone keeps pods of other classes and pools off the nodes.
	Alone bool `json:"alone"`
}

// AnySet reports whether any option is set.
func (n NUMAOptions) AnySet() bool { return n != NUMAOptions{} }
