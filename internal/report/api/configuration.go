package api

// The values of ClusterConfig.From.
const (
	FromServer = "API server"
	FromCopy   = "copy on this node"
)

// ClusterConfig is the part of the configuration that comes from the API server.
type ClusterConfig struct {
	// From is FromServer, or FromCopy until the API server answers. It is "" if the agent has neither.
	From string `json:"from,omitempty"`
	// Waiting says for what the agent waits before it knows the API server's layers; "" if it does not wait.
	Waiting string `json:"waiting,omitempty"`
	// Layers are the layers in force that override the node's file. Later layers override earlier ones.
	Layers []ConfigLayer `json:"layers,omitempty"`
	// Refused says why newer layers are not in force; "" if they are.
	Refused string `json:"refused,omitempty"`
	// RefusedTotal counts refusals.
	RefusedTotal uint64 `json:"refusedTotal,omitempty"`
	// NotUnderstood lists objects of other agents for this node, or parts of such objects, that have no effect.
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
	// Value is the value as JSON.
	Value string `json:"value"`
	// Source is "default", "flag", or the name of the file or object that sets the key.
	Source string `json:"source"`
}
