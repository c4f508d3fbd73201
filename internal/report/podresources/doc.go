// Package podresources serves the kubelet's PodResources API (v1) on a socket of the agent's own:
// CPUs and memory as the agent gave them to containers, devices and resource claims as the kubelet
// reports them. An answer reads the state and changes nothing.
package podresources
