// Package zones has the resources of each NUMA node of a node, and how much of each resource is free. It converts these
// amounts to the forms that schedulers read: NodeResourceTopology, Koordinator's annotations and Katalyst's
// CustomNodeResource. The package reads and writes no files and no Kubernetes objects.
package zones
