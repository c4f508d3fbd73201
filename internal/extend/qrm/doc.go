// Package qrm is a manager of QoS resource plugins (resourceplugin.v1alpha1) like the manager in Katalyst's kubelet.
// Plugins register at its socket, or the manager finds them in directories. The manager asks plugins on which NUMA
// nodes their resources are available, and lets plugins allocate resources. The manager decides nothing: it converts
// the plugins' answers to values and hints for package engine. It holds no lock while it calls a plugin.
package qrm
