// Package qrm is the manager of QoS resource plugins (resourceplugin.v1alpha1), which Katalyst has
// in its kubelet. Plugins register at its socket, or are found in directories; it asks them where
// their resources can be had and allocates them. It decides nothing: answers become values and
// hints, which the engine judges. No lock is held during a call.
package qrm
