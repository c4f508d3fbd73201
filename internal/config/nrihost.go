package config

// NRIHost lets NRI plugins connect to the agent if the runtime has no NRI. It needs
// attach: cri. The keys mean the same as the keys of containerd's NRI configuration.
type NRIHost struct {
	// Enabled switches the NRI host on. The agent then decodes each call of the kubelet and makes the same
	// call to the runtime. If this key is off, the agent relays the bytes of the connection.
	Enabled bool `json:"enabled"`
	// Socket is where plugins connect. The agent never replaces a socket that another process
	// serves.
	Socket string `json:"socket" default:"/var/run/trimtab/nri.sock" check:"socket"`
	// PluginPath is the directory of pre-installed plugins, which the agent starts.
	PluginPath string `json:"pluginPath" default:"/opt/nri/plugins" check:"path"`
	// PluginConfigPath is the directory with the configuration files of pre-installed plugins:
	// NN-name.conf or, if that file does not exist, name.conf.
	PluginConfigPath string `json:"pluginConfigPath" default:"/etc/nri/conf.d" check:"path"`
	// RegistrationTimeout is how long a plugin may take to register, in milliseconds.
	RegistrationTimeout Milliseconds `json:"pluginRegistrationTimeoutMilliseconds" default:"5000" check:"1..60000"`
	// RequestTimeout is how long a plugin may take for one request, in milliseconds. A plugin
	// that takes longer is disconnected. The request then continues without this plugin, unless
	// the plugin has registered with a failure policy that makes the request fail.
	RequestTimeout Milliseconds `json:"pluginRequestTimeoutMilliseconds" default:"2000" check:"1..60000"`
	// DisableConnections refuses connections of plugins: only pre-installed plugins run.
	DisableConnections bool `json:"disableConnections"`
	// Unsupported says what happens to a container if the NRI host cannot apply a part of a
	// plugin's adjustment. With "refuse" the creation of the container fails. With "report"
	// the agent logs this part, and the container is created without it.
	Unsupported string `json:"unsupported" default:"refuse" check:"refuse|report"`
	// DefaultValidator says which kinds of adjustments are refused, whichever plugin requests them.
	DefaultValidator DefaultValidator `json:"defaultValidator"`
}

// DefaultValidator configures the validator that is a part of the NRI library. It refuses kinds of adjustments.
type DefaultValidator struct {
	// Enable switches the validator on.
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
	// RequiredPlugins are plugins without which no container is created. Static pods and the plugins' own pods start
	// before the plugins, so these pods need an annotation with the key that tolerateMissingPluginsAnnotation names.
	RequiredPlugins []string `json:"requiredPlugins" check:"plugin names"`
	// TolerateMissingPluginsAnnotation is the key of an annotation. A pod whose annotation has
	// the value "true" is created without requiredPlugins.
	TolerateMissingPluginsAnnotation string `json:"tolerateMissingPluginsAnnotation" check:"annotation or empty"`
}
