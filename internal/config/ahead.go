package config

// Ahead says whether pods are decided before the runtime reports them.
type Ahead struct {
	// Enabled decides a pod as soon as the kubelet or the API server says that it will run here
	// (podspec). The agent keeps CPUs for it, and resource plugins allocate what it requests, before
	// its containers are created.
	Enabled bool `json:"enabled"`
	// Timeout is how long CPUs and resources are kept for a pod that no runtime reports, in
	// seconds.
	Timeout Seconds `json:"timeoutSeconds" default:"60" check:"1..3600"`
}
