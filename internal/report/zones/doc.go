// Package zones has a node's resources and the free part of them, for each NUMA node. It converts them to the
// Kubernetes objects that carry them: NodeResourceTopology, Koordinator's annotations, Katalyst's
// CustomNodeResource. It is pure: it neither measures nor writes.
package zones
