package effective

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// processSettings returns the settings of the first process and of its namespaces in an OCI spec, and the OCI hooks;
// nil if there are none. The settings are limits, priorities, the scheduler, the memory policy, intelRdt, kernel
// parameters, network devices, and whether cgroups are writable.
func processSettings(spec *specs.Spec) map[string]string {
	out := map[string]string{}
	addAttributes(out, spec.Process)
	addNamespaces(out, spec.Linux)
	addHooks(out, spec.Hooks)
	for _, m := range spec.Mounts {
		if m.Destination == "/sys/fs/cgroup" && !slices.Contains(m.Options, "ro") {
			out["cgroup.mount"] = "rw"
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// addAttributes adds the limits, the I/O priority and the scheduler of a process to out. p may be nil.
func addAttributes(out map[string]string, p *specs.Process) {
	if p == nil {
		return
	}
	for _, r := range p.Rlimits { // if a type occurs twice, the last one counts
		out["rlimit "+r.Type] = fmt.Sprintf("%d:%d", r.Soft, r.Hard)
	}
	if p.IOPriority != nil {
		out["io.priority"] = fmt.Sprintf("%s %d", p.IOPriority.Class, p.IOPriority.Priority)
	}
	if s := p.Scheduler; s != nil {
		out["scheduler"] = formatPairs(string(s.Policy), "nice", s.Nice, "priority", s.Priority, "flags", joinList(s.Flags),
			"runtime", s.Runtime, "deadline", s.Deadline, "period", s.Period)
	}
}

// HookName returns the key of an OCI hook in State.Process: its stage and its command.
func HookName(stage, path string, args []string) string {
	return strings.Join(append([]string{"oci.hook", stage, path}, args...), " ")
}

// addHooks adds the OCI hooks to out. h may be nil.
func addHooks(out map[string]string, h *specs.Hooks) {
	if h == nil {
		return
	}
	for stage, list := range map[string][]specs.Hook{
		"prestart": h.Prestart, "createRuntime": h.CreateRuntime, "createContainer": h.CreateContainer, //nolint:staticcheck // deprecated, and still in use
		"startContainer": h.StartContainer, "poststart": h.Poststart, "poststop": h.Poststop,
	} {
		for _, one := range list {
			out[HookName(stage, one.Path, one.Args)] = "added"
		}
	}
}

// addNamespaces adds the kernel parameters and the network devices of the container's namespaces to out. It also adds
// intelRdt and the memory policy. l may be nil.
func addNamespaces(out map[string]string, l *specs.Linux) {
	if l == nil {
		return
	}
	for name, text := range l.Sysctl {
		out["sysctl "+name] = text
	}
	for host, d := range l.NetDevices {
		out["net.device "+host] = d.Name
	}
	if r := l.IntelRdt; r != nil {
		for key, text := range map[string]string{"closid": r.ClosID, "schemata": strings.Join(r.Schemata, ",")} {
			if text != "" {
				out["intel.rdt "+key] = text
			}
		}
		if r.EnableMonitoring {
			out["intel.rdt monitoring"] = "true"
		}
	}
	if m := l.MemoryPolicy; m != nil {
		out["memory.policy"] = formatPairs(string(m.Mode), "nodes", m.Nodes, "flags", joinList(m.Flags))
	}
}

// joinList joins texts with commas.
func joinList[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, t := range list {
		texts[i] = string(t)
	}
	return strings.Join(texts, ",")
}

// formatPairs formats a word, followed by the name=value pairs whose value is neither 0 nor empty.
func formatPairs(head string, pairs ...any) string {
	for i := 0; i+1 < len(pairs); i += 2 {
		if text := fmt.Sprint(pairs[i+1]); text != "" && text != "0" {
			head += fmt.Sprintf(" %s=%s", pairs[i], text)
		}
	}
	return head
}
