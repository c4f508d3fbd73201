package config

import "strings"

// ResourcePlugins says where resource plugins are found, which serve
// resourceplugin.v1alpha1.ResourcePlugin.
type ResourcePlugins struct {
	// Directory is where plugins register, at the agent's socket kubelet.sock, and where
	// they have their own sockets. If it is empty, no plugin can register.
	Directory string `json:"directory" check:"path or empty"`
	// Watch are directories in which plugins create a socket that serves
	// pluginregistration.v1, as the plugins of Katalyst do.
	Watch []string `json:"watch" check:"directories"`
	// Timeout is how long one plugin may take for one call, in milliseconds. Plugins of one
	// container are called at the same time.
	Timeout Milliseconds `json:"timeoutMilliseconds" default:"500" check:"1..10000"`
	// Names map resources that pods request to resources of plugins, as in
	// "resource.katalyst.kubewharf.io/reclaimed_millicpu=cpu". Milli-CPUs become CPUs.
	Names []string `json:"names" check:"resource mappings"`
	// FailurePolicy says what happens to a container whose resource a plugin does not
	// allocate. With "ignore" the container is created without the resource, and the agent
	// reports that. With "fail" its creation fails with the plugin's reason, if the attachment
	// can do that.
	// "Ignore" and "Fail", as Kubernetes spells them, are the same.
	FailurePolicy string `json:"failurePolicy" default:"ignore" check:"ignore|fail" also:"Ignore|Fail"`
	// Reconcile is how often, in seconds, the agent asks plugins what they have allocated, if
	// they request that.
	Reconcile Seconds `json:"reconcileSeconds" default:"5" check:"1..3600"`
}

// NameMap returns Names as a map.
func (r ResourcePlugins) NameMap() map[string]string {
	out := make(map[string]string, len(r.Names))
	for _, n := range r.Names {
		from, to, _ := strings.Cut(n, "=")
		out[from] = to
	}
	return out
}
