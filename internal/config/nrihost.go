package config

// NRIHost lets NRI plugins connect to the agent if the runtime has no NRI. It needs
// attach: cri. Its keys are those of containerd's NRI.
type NRIHost struct {
	// Enabled switches the NRI host on. The agent then receives the kubelet's calls itself and makes each
	// call to the runtime, instead of relaying the bytes of the connection.
	Enabled bool `json:"enabled"`
	// Socket is where plugins connect. The agent never takes a socket that another process
	// serves.
	Socket string `json:"socket" default:"/var/run/trimtab/nri.sock" check:"socket"`
	// PluginPath is the directory of pre-installed plugins, which the agent starts.
	PluginPath string `json:"pluginPath" default:"/opt/nri/plugins" check:"path"`
	// PluginConfigPath is the directory of the configuration of pre-installed plugins:
	// NN-name.conf, else name.conf.
	PluginConfigPath string `json:"pluginConfigPath" default:"/etc/nri/conf.d" check:"path"`
	// RegistrationTimeout is how long a plugin may take to register, in milliseconds.
	RegistrationTimeout Milliseconds `json:"pluginRegistrationTimeoutMilliseconds" default:"5000" check:"1..60000"`
	// RequestTimeout is how long a plugin may take for one request, in milliseconds. A plugin
	// that takes longer is disconnected, and the request continues without it, unless the plugin
	// itself asks for another policy.
	RequestTimeout Milliseconds `json:"pluginRequestTimeoutMilliseconds" default:"2000" check:"1..60000"`
	// DisableConnections refuses connections of plugins: only pre-installed plugins run.
	DisableConnections bool `json:"disableConnections"`
	// Unsupported says what happens to a container if a part of a plugin's adjustment
	// cannot be applied here: "refuse" fails its creation, "report" logs the part and
	// creates the container without it.
	Unsupported string `json:"unsupported" default:"refuse" check:"refuse|report"`
	// DefaultValidator refuses adjustments of all plugins by rules.
	DefaultValidator DefaultValidator `json:"defaultValidator"`
}

// DefaultValidator is the validator that the NRI library has built in.
type DefaultValidator struct {
	// Enable enables the validator.
	Enable bool `json:"enable"`
	// RejectOCIHookAdjustment refuses OCI hooks.
	RejectOCIHookAdjustment bool `json:"rejectOCIHookAdjustment"`
	// RejectRuntimeDefaultSeccompAdjustment refuses changes of the runtime's default
	// seccomp policy.
	RejectRuntimeDefaultSeccompAdjustment bool `json:"rejectRuntimeDefaultSeccompAdjustment"`
	// RejectUnconfinedSeccompAdjustment refuses a seccomp policy for an unconfined
	// container.
	RejectUnconfinedSeccompAdjustment bool `json:"rejectUnconfinedSeccompAdjustment"`
	// RejectCustomSeccompAdjustment refuses changes of a seccomp policy of type Localhost.
	RejectCustomSeccompAdjustment bool `json:"rejectCustomSeccompAdjustment"`
	// RejectNamespaceAdjustment refuses changes of namespaces.
	RejectNamespaceAdjustment bool `json:"rejectNamespaceAdjustment"`
	// RejectSysctlAdjustment refuses changes of sysctls.
	RejectSysctlAdjustment bool `json:"rejectSysctlAdjustment"`
	// RequiredPlugins are plugins without which no container is created. Static pods and
	// the plugins' own pods need the annotation of tolerateMissingPluginsAnnotation, or
	// they do not start either.
	RequiredPlugins []string `json:"requiredPlugins" check:"plugin names"`
	// TolerateMissingPluginsAnnotation is the key of an annotation. A pod with the value "true"
	// for it does not need requiredPlugins.
	TolerateMissingPluginsAnnotation string `json:"tolerateMissingPluginsAnnotation" check:"annotation or empty"`
}
