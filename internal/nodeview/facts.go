package nodeview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// factsOf returns the facts on which the decision about a container depends, such as the container's requests. Each
// fact has its source.
func factsOf(s *engine.State, p *engine.Pod, ctr *engine.Container) []api.Fact {
	spec, named := p.Spec.Container(ctr.Name)
	out := []api.Fact{kindFact(p.Spec, spec, named), qosFact(p)}
	if named {
		for _, a := range []struct {
			name string
			from lifecycle.Amounts
		}{{"request", spec.Requests}, {"limit", spec.Limits}} {
			out = append(out, amountFacts(a.name, a.from, p.Spec.From)...)
		}
	}
	out = fallbackFacts(out, p, ctr, named)
	if p.Spec != nil {
		out = append(out, amountFacts("pod request", p.Spec.Requests, p.Spec.From)...)
		out = append(out, amountFacts("pod limit", p.Spec.Limits, p.Spec.From)...)
		out = append(out, amountFacts("pod overhead", p.Spec.Overhead, p.Spec.From)...)
	}
	out = append(out, containersFact(s, p))
	if p.Spec != nil && p.Spec.FromStateFile {
		for i := range out {
			if out[i].From == p.Spec.From {
				out[i].Note = strings.TrimPrefix(out[i].Note+"; saved before the agent's start", "; ")
			}
		}
	}
	return out
}

// kindFact returns the fact about the kind of a container, such as init container. named means that the pod's spec has
// the container.
func kindFact(spec *lifecycle.PodSpec, c lifecycle.ContainerSpec, named bool) api.Fact {
	f := api.Fact{Name: "kind", Value: c.Kind.String()}
	switch {
	case named:
		f.From = spec.From
	case spec != nil:
		f.From, f.Note = spec.From, "the pod spec does not have the container, so the agent treats it as an app container"
	default:
		f.From, f.Note = lifecycle.FromNothing, "the pod spec is not known, so the agent treats the container as an app container"
	}
	return f
}

// qosFact returns the fact about a pod's QoS class.
func qosFact(p *engine.Pod) api.Fact {
	switch {
	case p.Pod.CgroupParent == "" && (p.Spec == nil || p.Spec.QoS == ""):
		return api.Fact{
			Name: "QoS", Value: p.Intent.QoS.String(), From: lifecycle.FromNothing,
			Note: "the QoS class is not known, because the pod has no cgroup parent: no kubelet created the pod",
		}
	case p.Spec == nil || p.Spec.QoS == "":
		return api.Fact{Name: "QoS", Value: p.Intent.QoS.String(), From: "cgroup parent"}
	}
	f := api.Fact{Name: "QoS", Value: p.Spec.QoS, From: p.Spec.From}
	if cgroupQoS := p.Intent.QoS.String(); cgroupQoS != p.Spec.QoS {
		f.Note = "the agent uses " + cgroupQoS + ", because the pod's cgroup is that of a " + cgroupQoS + " pod"
	}
	return f
}

// amountFacts returns one fact for each resource in all, with the amount of the resource, sorted by name. The names of
// the facts begin with prefix, such as "request".
func amountFacts(prefix string, all lifecycle.Amounts, from lifecycle.Source) []api.Fact {
	var out []api.Fact
	for name, v := range all {
		value := fmt.Sprint(v)
		if name == lifecycle.ResourceCPU {
			value += "m"
		}
		out = append(out, api.Fact{Name: prefix + " " + intent.Printable(name), Value: value, From: from})
	}
	slices.SortFunc(out, func(a, b api.Fact) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// fallbackFacts adds facts from sources that are less exact than the pod spec: batch resources from the annotation, and
// resources from the runtime's request if the spec does not have the container.
func fallbackFacts(out []api.Fact, p *engine.Pod, ctr *engine.Container, named bool) []api.Fact {
	put := func(name string, from lifecycle.Source, v int64, unit string) {
		out = append(out, api.Fact{Name: name, Value: fmt.Sprint(v) + unit, From: from})
	}
	if b, ok := p.Intent.Batch.V[ctr.Name]; ok && b.From == "" {
		for _, a := range []struct {
			name string
			v    int64
		}{{"request batch-cpu", b.RequestCPU}, {"limit batch-cpu", b.LimitCPU}, {"limit batch-memory", b.LimitMemory}} {
			if a.v > 0 {
				put(a.name, lifecycle.FromAnnotation, a.v, "")
			}
		}
	}
	if named {
		return out
	}
	r := ctr.Pristine
	if s := r.CPU.Shares.V; s > 2 { // the shares that the kubelet sets if there is no request
		put("request cpu", lifecycle.FromRuntime, int64((s*1000+1023)/1024), "m")
	}
	if q := r.CPU.Quota.V; q > 0 {
		put("limit cpu", lifecycle.FromRuntime, q*1000/int64(max(r.CPU.Period.Or(100000), 1)), "m")
	}
	if m := r.Memory.Limit.V; m > 0 {
		put("limit memory", lifecycle.FromRuntime, m, "")
	}
	return out
}

// containersFact returns the fact that names the pod's containers.
func containersFact(s *engine.State, p *engine.Pod) api.Fact {
	f := api.Fact{Name: "containers", From: "runtime", Note: "the containers that were created so far"}
	var names []string
	if p.Spec != nil {
		f.From, f.Note = p.Spec.From, ""
		for _, c := range p.Spec.Containers {
			names = append(names, fmt.Sprintf("%s (%s)", c.Name, c.Kind))
		}
	} else {
		for _, id := range s.ContainersOf(p.Pod.ID) {
			if name := s.Container(id).Name; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	f.Value = strings.Join(names, ", ")
	return f
}
