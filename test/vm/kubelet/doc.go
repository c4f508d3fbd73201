// Package kubelet tests the agent with a real kubelet that has no API server and runs static pods (suite B0 in
// docs/testing.md). The tests compare the values in the kernel with the values that the agent decided. They do so after
// a restart of the kubelet, after the kubelet wrote its own values, and with the kubelet's static CPU manager.
// TestTopologyManager also has an API server and a device plugin.
package kubelet
