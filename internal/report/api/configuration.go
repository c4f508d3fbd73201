package api

// The values of ClusterConfig.From.
const (
	FromServer = "API server"
	FromCopy   = "copy on this node"
)

// ClusterConfig is the part of the configuration that comes from the API server.
type ClusterConfig struct {
	// From says where this part of the configuration comes from. Until the API server answers, it comes from the copy
	// that the agent has stored on the node (FromCopy), and then from the API server (FromServer). From is "" if the
	// API server has not answered and there is no copy.
	From string `json:"from,omitempty"`
	// Waiting names the object at the API server that the agent has not read yet and needs before it uses this part of
	// the configuration; "" if the agent does not wait.
	Waiting string `json:"waiting,omitempty"`
	// Layers are the objects in force, such as ConfigMaps, whose keys override the node's file. Later objects override
	// earlier ones.
	Layers []ConfigLayer `json:"layers,omitempty"`
	// Refused says why the newest objects are not in force; "" if they are in force.
	Refused string `json:"refused,omitempty"`
	// RefusedTotal counts how often the agent refused newer objects.
	RefusedTotal uint64 `json:"refusedTotal,omitempty"`
	// NotUnderstood lists the objects of other node agents, such as Koordinator, and the settings in these objects,
	// that have no effect in Trimtab.
	NotUnderstood []string `json:"notUnderstood,omitempty"`
}

// ConfigLayer is an object at the API server whose configuration is in force.
type ConfigLayer struct {
	Name string `json:"name"`
	// Version is the object's resourceVersion.
	Version string `json:"version,omitempty"`
}

// Configuration is the answer to `trimtab config print --sources`.
type Configuration struct {
	Generation uint64    `json:"generation"` // number of configurations that were in force since the agent's start
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
