package effective

import (
	"fmt"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// process is what an OCI spec has its first process start with: limits, priorities
// and memory policy, and parameters and network devices of its namespaces.
func process(spec *specs.Spec) map[string]string {
	out := map[string]string{}
	if p := spec.Process; p != nil {
		for _, r := range p.Rlimits { // of a type that occurs twice the last counts
			out["rlimit "+r.Type] = fmt.Sprintf("%d:%d", r.Soft, r.Hard)
		}
		if p.IOPriority != nil {
			out["io.priority"] = fmt.Sprintf("%s %d", p.IOPriority.Class, p.IOPriority.Priority)
		}
		if s := p.Scheduler; s != nil {
			flags := make([]string, len(s.Flags))
			for i, f := range s.Flags {
				flags[i] = string(f)
			}
			out["scheduler"] = phrase(string(s.Policy), "nice", s.Nice, "priority", s.Priority, "flags", strings.Join(flags, ","),
				"runtime", s.Runtime, "deadline", s.Deadline, "period", s.Period)
		}
	}
	if l := spec.Linux; l != nil {
		for name, text := range l.Sysctl {
			out["sysctl "+name] = text
		}
		for host, d := range l.NetDevices {
			out["net.device "+host] = d.Name
		}
		if m := l.MemoryPolicy; m != nil {
			flags := make([]string, len(m.Flags))
			for i, f := range m.Flags {
				flags[i] = string(f)
			}
			out["memory.policy"] = phrase(string(m.Mode), "nodes", m.Nodes, "flags", strings.Join(flags, ","))
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// phrase is a word, and each name=value that is not 0 or empty.
func phrase(head string, pairs ...any) string {
	for i := 0; i+1 < len(pairs); i += 2 {
		if text := fmt.Sprint(pairs[i+1]); text != "" && text != "0" {
			head += fmt.Sprintf(" %s=%s", pairs[i], text)
		}
	}
	return head
}
