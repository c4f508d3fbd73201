// Package podspec reports what the runtime does not report of pods: requests, kinds
// of containers, siblings, resources of the pod as a whole. It asks the kubelet,
// by a chain of two sources: its local Pods API where it has one (Kubernetes
// 1.36 with the feature gate PodsAPI, on by default from 1.37), else its /pods
// endpoint. It keeps the answers, reports changes, and remembers them across
// restarts of the agent.
//
// It decides nothing, and never makes a runtime wait longer than its options
// allow. An answer that is broken in any way is an error that is reported, and
// what was known stays known.
package podspec
