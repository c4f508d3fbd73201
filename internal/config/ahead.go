package config

// Ahead says whether the agent decides values for a pod before the runtime reports the pod.
type Ahead struct {
	// Enabled makes the agent decide values for a pod as soon as the kubelet or the API server lists the
	// pod for this node (podspec). Before the containers are created, the agent then reserves CPUs for
	// the pod, and resource plugins allocate the resources that the pod requests.
	Enabled bool `json:"enabled"`
	// Timeout is how long, in seconds, CPUs and resources stay reserved for a pod that the runtime does
	// not report.
	Timeout Seconds `json:"timeoutSeconds" default:"60" check:"1..3600"`
}
