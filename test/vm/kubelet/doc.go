// Package kubelet is suite B0: the agent beside a real kubelet that has no API server and runs static pods. What the
// kernel has is compared with what the pods were promised, after the kubelet was restarted and after it wrote its own
// values, and beside its static CPU manager.
package kubelet
