package config

import "strings"

// ResourcePlugins says where resource plugins are found, which serve
// resourceplugin.v1alpha1.ResourcePlugin.
type ResourcePlugins struct {
	// Directory is where the agent serves registrations, at kubelet.sock, and plugins
	// that register have their sockets. Empty, none can register.
	Directory string `json:"directory" check:"path or empty"`
	// Watch are directories in which plugins put a socket that serves
	// pluginregistration.v1, as Katalyst's do.
	Watch []string `json:"watch" check:"directories"`
	// Timeout is how long one plugin may take for one call, in milliseconds. Plugins of
	// one container are called at once.
	Timeout int `json:"timeoutMilliseconds" default:"500" check:"1..10000"`
	// Names map resources that pods request to those of plugins, as in
	// "resource.katalyst.kubewharf.io/reclaimed_millicpu=cpu". Milli-CPUs become CPUs.
	Names []string `json:"names" check:"resource mappings"`
	// FailurePolicy says what happens to a container whose resource a plugin does not
	// allocate. With "ignore" it is created without, and that is reported. With "fail" its
	// creation fails with the plugin's reason, where the attachment can do that.
	// "Ignore" and "Fail", as Kubernetes spells them, are the same.
	FailurePolicy string `json:"failurePolicy" default:"ignore" check:"ignore|fail" also:"Ignore|Fail"`
	// Reconcile is how often plugins that want it are asked what they have allocated, in
	// seconds.
	Reconcile int `json:"reconcileSeconds" default:"5" check:"1..3600"`
}

// Mapped returns Names as a map.
func (r ResourcePlugins) Mapped() map[string]string {
	out := make(map[string]string, len(r.Names))
	for _, n := range r.Names {
		from, to, _ := strings.Cut(n, "=")
		out[from] = to
	}
	return out
}
