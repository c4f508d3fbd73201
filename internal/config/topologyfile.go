package config

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement/class"
)

// topologySpec is the spec of a TopologyAwarePolicy of containers/nri-plugins. It has the keys of the section
// placement.topologyAware, and keys that only the custom resource has.
type topologySpec struct {
	TopologyAware
	policyKeys
	PinCPU bool `json:"pinCPU" default:"true"`

	NamespaceSchedulingClasses anyNode `json:"namespaceSchedulingClasses"`
	PodQoSSchedulingClasses    anyNode `json:"podQoSSchedulingClasses"`

	DefaultCPUPriority       anyNode `json:"defaultCPUPriority" none:"the priority of CPUs"`
	CPUClasses               anyNode `json:"cpuClasses" none:"CPU classes"`
	SharedPoolCPUClass       anyNode `json:"sharedPoolCPUClass" none:"CPU classes"`
	ReservedPoolCPUClass     anyNode `json:"reservedPoolCPUClass" none:"CPU classes"`
	DefaultExclusiveCPUClass anyNode `json:"defaultExclusiveCPUClass" none:"CPU classes"`
}

// convertTopologyAware writes the spec of a TopologyAwarePolicy to a configuration.
func (r *crReader) convertTopologyAware(s *topologySpec, c *Config) {
	c.Placement.Policy, c.Placement.TopologyAware = "topology-aware", s.TopologyAware
	c.Placement.TopologyAware.ReservedPoolNamespaces = withKubeSystem(s.ReservedPoolNamespaces)
	r.convertSchedulingClasses(s, &c.Placement.TopologyAware)
	if !s.PinCPU {
		r.noteUnconverted("spec.pinCPU", "has no equivalent: with mode: observe the agent decides CPUs, but pins no container to CPUs")
	}
	if whole := r.convertPools(&s.policyKeys, &c.Pools); whole > 0 {
		r.noteUnconverted("spec.reservedResources.cpu", "has no equivalent: write a list of %d CPUs into pools.reserved", whole)
	}
}

// convertSchedulingClasses converts two mappings to lists: from namespaces to scheduling classes, and from QoS classes
// to scheduling classes.
func (r *crReader) convertSchedulingClasses(s *topologySpec, o *TopologyAware) {
	const namespaces, qos = "spec.namespaceSchedulingClasses", "spec.podQoSSchedulingClasses"
	r.visitTextPairs(s.NamespaceSchedulingClasses, namespaces, func(namespace, name string, _ int) {
		o.NamespaceSchedulingClasses = append(o.NamespaceSchedulingClasses, class.NamespaceOptions{Namespaces: []string{namespace}, SchedulingClass: name})
	})
	r.visitTextPairs(s.PodQoSSchedulingClasses, qos, func(of, name string, line int) {
		for _, q := range []intent.QoS{intent.Guaranteed, intent.Burstable, intent.BestEffort} {
			if strings.EqualFold(of, q.String()) {
				o.PodQoSSchedulingClasses = append(o.PodQoSSchedulingClasses, class.QoSOptions{QoSClass: q.String(), SchedulingClass: name})
				return
			}
		}
		r.addProblem(line, qos, "%s is not a QoS class: want Guaranteed, Burstable or BestEffort", quoteShort(of))
	})
}

// visitTextPairs calls add for each key and value of a mapping from texts to texts.
func (r *crReader) visitTextPairs(n anyNode, path string, add func(key, value string, line int)) {
	if n.node == nil || isNull(n.node) {
		return
	}
	if n.node.Kind != yaml.MappingNode {
		r.addProblem(n.node.Line, path, "want a mapping of names, got %s", describeNode(n.node))
		return
	}
	for key, value := range yamlPairs(n.node) {
		if key.Kind != yaml.ScalarNode || value.Kind != yaml.ScalarNode || value.ShortTag() != "!!str" {
			r.addProblem(key.Line, path, "want a mapping of names, got %s", describeNode(value))
			continue
		}
		add(key.Value, value.Value, key.Line)
	}
}
