// Package podspec reports what the runtime does not know of pods: requests, kinds of
// containers, siblings, and resources of the pod as a whole. It reads them from a chain
// of sources: the kubelet's local Pods API (Kubernetes 1.36 with the feature gate
// PodsAPI, on by default from 1.37), its /pods endpoint, and the API server. It keeps
// the answers, reports changes, and saves them for the next start of the agent.
//
// It decides nothing, and never makes a runtime wait longer than its options allow. A
// malformed answer is an error that it reports; the specs known before stay.
package podspec
