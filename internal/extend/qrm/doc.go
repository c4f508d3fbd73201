// Package qrm is the manager of QoS resource plugins (resourceplugin.v1alpha1), which Katalyst has in its
// kubelet. Plugins register at its socket, or the manager finds them in directories. It asks them on which
// NUMA nodes their resources are available, and allocates resources. It decides nothing: it converts
// answers to values and hints, and the engine uses those. It holds no lock during a call.
package qrm
