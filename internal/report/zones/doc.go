// Package zones has the resources of each NUMA node of a node, and how much of them is free. It converts them to
// Kubernetes objects: NodeResourceTopology, Koordinator's annotations and Katalyst's CustomNodeResource. The package
// neither measures nor writes.
package zones
