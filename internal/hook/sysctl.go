package hook

import (
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Sysctl sets kernel parameters of a container's namespaces, as its pod asks. Keys
// and values: NRI 0.12, plugin device-injector.
type Sysctl struct {
	// Allowed are the parameters that pods may set. A name that ends with * is a prefix of
	// allowed names.
	Allowed []string
}

// SysctlOptions tunes the hook of kernel parameters.
type SysctlOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Allowed are the names of the parameters that pods may set; one that ends with *
	// stands for all that begin so. Without any, they are those that kubelets call safe.
	Allowed []string `json:"allowed" check:"kernel parameters"`
}

// AllOn is the hook with all that can be switched on.
func (SysctlOptions) AllOn() Hook { return Sysctl{Allowed: []string{"*"}} }

// Make makes the hook for a node.
func (o SysctlOptions) Make(_ Node, _ *Options) (Hook, error) {
	if len(o.Allowed) == 0 {
		return Sysctl{Allowed: safeSysctls}, nil
	}
	return Sysctl{Allowed: o.Allowed}, nil
}

// safeSysctls are the parameters that kubelets call safe (Kubernetes 1.34,
// pkg/kubelet/sysctl/safe_sysctls.go).
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
	"net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
}

// Info describes the hook.
func (Sysctl) Info() Info {
	return Info{
		Name:    "sysctl",
		About:   "kernel parameters of a container's namespaces",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRISysctl},
		Sets:    []lifecycle.Field{lifecycle.SysctlEntry},
		Compose: "the only hook that sets them",
		Differs: []string{
			"only the names in hooks.sysctl.allowed, by default those that kubelets call safe; the agent reports others",
			"parameters of the host's namespaces are refused (net.* for a pod with hostNetwork, those of IPC with hostIPC), because an OCI runtime would fail the creation",
			"the parameters apply to the whole pod: all its containers see the value that was set last",
		},
	}
}

// Propose sets a container's parameters.
func (h Sysctl) Propose(in *Input, out *Output) {
	asked, why, ok := scoped(in, in.Intent.Sysctls, "sysctl")
	if !ok {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(asked.V)) {
		if no := h.refusal(in, name); no != "" {
			out.decline(asked.Key, name, "sysctl: "+no)
			continue
		}
		out.text(in, lifecycle.SysctlEntry, name, asked.V[name], why)
	}
}

// refusal returns the reason why a parameter is not set; "" if it is set. The namespaces are
// those that OCI runtimes accept (runc 1.2, libcontainer/configs/validate).
func (h Sysctl) refusal(in *Input, name string) string {
	switch {
	case !slices.ContainsFunc(h.Allowed, func(pattern string) bool { return matchesEnd(pattern, name) }):
		return "hooks.sysctl.allowed does not list it"
	case strings.HasPrefix(name, "net."):
		if in.Pod != nil && in.Pod.HostNetwork {
			return "the pod uses the host's network"
		}
	case strings.HasPrefix(name, "fs.mqueue."), strings.HasPrefix(name, "kernel.shm"), strings.HasPrefix(name, "kernel.msg"), name == "kernel.sem":
		if in.Pod != nil && in.Pod.HostIPC {
			return "the pod uses the host's IPC namespace"
		}
	default:
		return "it does not belong to a namespace of a container"
	}
	return ""
}

// matchesEnd reports whether a name is a pattern, or begins with one that ends with *.
func matchesEnd(pattern, name string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	return name == pattern || open && strings.HasPrefix(name, prefix)
}
