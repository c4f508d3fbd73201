// Package podresources serves the kubelet's PodResources API (v1) on a socket of the agent. The answers have the CPUs,
// memory and CDI devices that the agent assigned, and the devices and resource claims that the kubelet reports. A
// request changes nothing.
package podresources
