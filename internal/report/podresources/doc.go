// Package podresources serves the kubelet's PodResources API (v1) on a socket of the agent. CPUs and memory are
// those that the agent gave to containers. Devices and resource claims are those that the kubelet reports. An
// answer reads the state and changes nothing.
package podresources
