package hook

import (
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// SysctlOptions are the options of the hook that sets the kernel parameters that a pod requests for its containers'
// namespaces. The keys and values are those of NRI 0.12, plugin device-injector.
type SysctlOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Allowed are the names of the parameters that pods may set; an entry that ends with * stands for all names that
	// begin with the text before it. If the list is empty, pods may set the safe sysctls of Kubernetes.
	Allowed []string `json:"allowed" check:"kernel parameters"`
}

// safeSysctls are the safe sysctls of Kubernetes 1.34 (pkg/kubelet/sysctl/safe_sysctls.go).
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
	"net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
}

// Info describes the hook.
func (SysctlOptions) Info() Info {
	return Info{
		Name:    "sysctl",
		About:   "kernel parameters of a container's namespaces",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRISysctl},
		Sets:    []lifecycle.Field{lifecycle.SysctlEntry},
		Compose: "no other hook sets this field",
		Differs: []string{
			"pods may set only the names in hooks.sysctl.allowed, by default the safe sysctls of Kubernetes; the agent refuses and reports other names",
			"parameters of the host's namespaces are refused (net.* for a pod with hostNetwork, IPC parameters for a pod with hostIPC), because an OCI runtime would fail the creation",
			"the parameters apply to the whole pod: all its containers see the value that was set last",
		},
	}
}

// Propose sets the kernel parameters that the pod requests for a container.
func (h SysctlOptions) Propose(in *Input, out *Output) {
	asked, why, ok := scopedRequest(in, in.Intent.Sysctls, "sysctl")
	if !ok {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(asked.V)) {
		if whyNot := h.refusal(in, name); whyNot != "" {
			out.decline(asked.Key, name, "sysctl: "+whyNot)
			continue
		}
		out.setText(in, lifecycle.SysctlEntry, name, asked.V[name], why)
	}
}

// refusal returns the reason why the hook does not set a parameter; "" if it sets the parameter. The parameter must
// belong to a namespace whose parameters OCI runtimes accept (runc 1.2, libcontainer/configs/validate).
func (h SysctlOptions) refusal(in *Input, name string) string {
	allowed := h.Allowed
	if len(allowed) == 0 {
		allowed = safeSysctls
	}
	switch {
	case !matchesList(allowed, name):
		return "hooks.sysctl.allowed does not list this parameter"
	case strings.HasPrefix(name, "net."):
		if in.Pod != nil && in.Pod.HostNetwork {
			return "the pod uses the host's network"
		}
	case strings.HasPrefix(name, "fs.mqueue."), strings.HasPrefix(name, "kernel.shm"), strings.HasPrefix(name, "kernel.msg"), name == "kernel.sem":
		if in.Pod != nil && in.Pod.HostIPC {
			return "the pod uses the host's IPC namespace"
		}
	default:
		return "the parameter does not belong to a namespace of a container"
	}
	return ""
}

// matchesList reports whether an entry of the list matches the name. An entry that ends with * stands for all names
// that begin with the text before the *.
func matchesList(list []string, name string) bool {
	return slices.ContainsFunc(list, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return name == pattern || open && strings.HasPrefix(name, prefix)
	})
}
