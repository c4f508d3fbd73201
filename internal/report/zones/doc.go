// Package zones has a node's resources and what is free of them, per NUMA node, and the
// forms in which Kubernetes objects carry it: NodeResourceTopology, Koordinator's
// annotations, Katalyst's CustomNodeResource. It is pure: it neither measures nor
// writes.
package zones
