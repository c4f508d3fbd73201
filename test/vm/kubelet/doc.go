// Package kubelet is suite B0: the agent with a real kubelet that has no API server and runs static pods. It compares
// the kernel's values with the decided ones, after a restart of the kubelet, after the kubelet wrote its own values,
// and with its static CPU manager. TestTopologyManager also has an API server and a device plugin.
package kubelet
