// Package qrm is a manager of QoS resource plugins (resourceplugin.v1alpha1) like the manager in Katalyst's kubelet.
// Plugins register at its socket, or the manager finds them in directories. The manager asks plugins on which NUMA
// nodes their resources are available, and lets them allocate resources. It decides nothing: it converts answers to
// values and hints for the engine. It holds no lock during a call.
package qrm
