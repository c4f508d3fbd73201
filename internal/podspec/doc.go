// Package podspec provides what the runtime does not know about pods: requests, kinds of containers, the other
// containers of a pod, and resources of the pod as a whole. It reads these specs from a chain of sources: the kubelet's
// local Pods API (Kubernetes 1.36 with the feature gate PodsAPI, on by default from 1.37), the kubelet's endpoint
// /pods, and the API server. It stores the specs, reports their changes, and saves them for the next start of the
// agent.
//
// A second part, Grants, reads the devices, CPUs and memory nodes that the kubelet has assigned to pods.
//
// The package decides nothing. It delays a request of the runtime at most for the time that its options allow. After a
// malformed answer it reports an error, and the earlier specs stay in use.
package podspec
