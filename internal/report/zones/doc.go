// Package zones is what a node has and what of it is free, per NUMA node, and the
// forms in which Kubernetes objects carry it: NodeResourceTopology, Koordinator's
// annotations, Katalyst's CustomNodeResource. It is pure: it neither measures nor
// writes.
package zones
