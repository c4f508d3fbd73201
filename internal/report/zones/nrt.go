package zones

import (
	"fmt"
	"strconv"
)

// TopologyManager is the configuration of the kubelet's topology manager that a scheduler should assume for a node.
// Policy is none, best-effort, restricted or single-numa-node. Scope is container or pod.
type TopologyManager struct{ Policy, Scope string }

const (
	// maxZone is the highest zone number that the scheduler plugin supports: the plugin has an array of 64 zones
	// (scheduler-plugins v0.34.7, createNUMANodeList).
	maxZone = 63
	// defaultZones is the largest number of zones that the scheduler plugin accepts by default. For a node with more
	// zones, the attribute topologyManagerMaxNUMANodes is needed.
	defaultZones = 8
)

// topologyPolicies has the values of the field topologyPolicies (noderesourcetopology-api v0.1.3) by the kubelet's name
// of the policy, without the suffix for the scope. v1alpha1 requires this field. Readers of v1alpha2 use the attributes
// instead.
var topologyPolicies = map[string]string{"best-effort": "BestEffort", "restricted": "Restricted", "single-numa-node": "SingleNUMANode"}

// policyName returns the value of the field topologyPolicies.
func (m TopologyManager) policyName() string {
	name, known := topologyPolicies[m.Policy]
	switch {
	case !known:
		return "None"
	case m.Scope == "pod":
		return name + "PodLevel"
	}
	return name + "ContainerLevel"
}

// NRT returns a NodeResourceTopology (topology.node.k8s.io/v1alpha2) without metadata, for the scheduler plugin
// NodeResourceTopologyMatch. The plugin needs zones of type Node with the names node-0, node-1 and so on, each
// with CPUs and memory, even if the amount is 0. NRT leaves out zones above maxZone.
func (n Node) NRT(m TopologyManager) map[string]any {
	var all []any
	for _, z := range n.Zones {
		if z.ID > maxZone {
			continue
		}
		all = append(all, z.nrt())
	}
	attributes := []any{
		attribute("topologyManagerPolicy", m.Policy), attribute("topologyManagerScope", m.Scope),
		attribute("nodeTopologyPodsFingerprint", Fingerprint(n.Pods)), attribute("nodeTopologyPodsFingerprintMethod", "all"),
	}
	if len(n.Zones) > defaultZones {
		attributes = append(attributes, attribute("topologyManagerMaxNUMANodes", strconv.Itoa(len(n.Zones))))
	}
	return map[string]any{"zones": all, "attributes": attributes, "topologyPolicies": []any{m.policyName()}}
}

// attribute returns an attribute of a node or zone in a NodeResourceTopology or CustomNodeResource.
func attribute(name, value string) any { return map[string]any{"name": name, "value": value} }

func zoneName(id int) string { return fmt.Sprintf("node-%d", id) }

// nrt returns a zone of a NodeResourceTopology.
func (z Zone) nrt() map[string]any {
	out := map[string]any{"name": zoneName(z.ID), "type": "Node"}
	var costs, resources, attributes []any
	for _, c := range z.Costs {
		if c.Zone <= maxZone {
			costs = append(costs, map[string]any{"name": zoneName(c.Zone), "value": int64(c.Value)})
		}
	}
	for _, r := range z.Resources {
		resources = append(resources, map[string]any{
			"name": r.Name, "capacity": quantity(r.Name, r.Capacity),
			"allocatable": quantity(r.Name, r.Allocatable), "available": quantity(r.Name, r.Available),
		})
	}
	for _, a := range [][2]string{{"cpuset", z.CPUs}, {"exclusive cpuset", z.OwnedCPUs}, {"shared cpuset", z.SharedCPUs}, {"memory kind", z.Memory}} {
		if a[1] != "" {
			attributes = append(attributes, attribute(a[0], a[1]))
		}
	}
	for key, list := range map[string][]any{"costs": costs, "resources": resources, "attributes": attributes} {
		if len(list) > 0 {
			out[key] = list
		}
	}
	return out
}
