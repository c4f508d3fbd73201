package config

import "strings"

// ResourcePlugins says where the agent finds resource plugins: programs that serve
// resourceplugin.v1alpha1.ResourcePlugin.
type ResourcePlugins struct {
	// Directory is the directory with the sockets of the plugins, and with the agent's socket
	// kubelet.sock, where plugins register. If it is empty, no plugin can register.
	Directory string `json:"directory" check:"path or empty"`
	// Watch are directories in which plugins create a socket that serves
	// pluginregistration.v1. The plugins of Katalyst create such a socket.
	Watch []string `json:"watch" check:"directories"`
	// Timeout is how long one plugin may take for one call, in milliseconds. The agent calls
	// the plugins for one container at the same time.
	Timeout Milliseconds `json:"timeoutMilliseconds" default:"500" check:"1..10000"`
	// Names map resources that pods request to resources of plugins, for example
	// "resource.katalyst.kubewharf.io/reclaimed_millicpu=cpu". The agent converts milli-CPUs to CPUs.
	Names []string `json:"names" check:"resource mappings"`
	// FailurePolicy says what happens to a container whose resource a plugin does not
	// allocate. With "ignore" the container is created without the resource, and the agent
	// reports this. With "fail" the creation fails with the plugin's reason, if the attachment
	// can make creations fail.
	// "Ignore" and "Fail", as Kubernetes spells them, are also valid.
	FailurePolicy string `json:"failurePolicy" default:"ignore" check:"ignore|fail" also:"Ignore|Fail"`
	// Reconcile is how often, in seconds, the agent queries the allocations of plugins that
	// have the option need_reconcile.
	Reconcile Seconds `json:"reconcileSeconds" default:"5" check:"1..3600"`
}

// NameMap returns Names as a map from a pod's resource to a plugin's resource.
func (r ResourcePlugins) NameMap() map[string]string {
	out := make(map[string]string, len(r.Names))
	for _, n := range r.Names {
		from, to, _ := strings.Cut(n, "=")
		out[from] = to
	}
	return out
}
