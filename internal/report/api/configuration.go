package api

// The sources of the layers in force.
const (
	FromServer = "API server"
	FromCopy   = "copy on this node"
)

// ClusterConfig is the part of the configuration that comes from the API server.
type ClusterConfig struct {
	// From is FromServer, or FromCopy until the API server answers; "" for neither.
	From string `json:"from,omitempty"`
	// Waiting is what is missing before the agent knows the API server's layers.
	Waiting string `json:"waiting,omitempty"`
	// Layers are the layers in force above the node's file, the lowest first.
	Layers []ConfigLayer `json:"layers,omitempty"`
	// Refused is why newer layers are not in force.
	Refused string `json:"refused,omitempty"`
	// RefusedTotal counts refusals.
	RefusedTotal uint64 `json:"refusedTotal,omitempty"`
	// NotUnderstood are objects of other agents for this node, or parts of them, that
	// have no effect here.
	NotUnderstood []string `json:"notUnderstood,omitempty"`
}

// ConfigLayer is an object whose configuration is in force.
type ConfigLayer struct {
	Name string `json:"name"`
	// Version is the object's resourceVersion.
	Version string `json:"version,omitempty"`
}

// Configuration is the answer to `trimtab config print --sources`.
type Configuration struct {
	Generation uint64    `json:"generation"`
	Keys       []Setting `json:"keys"`
}

// Setting is a key of the configuration.
type Setting struct {
	Key string `json:"key"`
	// Value is JSON.
	Value string `json:"value"`
	// Source is "default", "flag", the file, or the object that set it.
	Source string `json:"source"`
}
