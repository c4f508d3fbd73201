package config

import (
	"reflect"
	"slices"
	"strings"
)

// topologyPolicy is the custom resource TopologyAwarePolicy of containers/nri-plugins (0.14,
// pkg/apis/config/v1alpha1).
type topologyPolicy struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   anyNode      `json:"metadata"`
	Status     anyNode      `json:"status"`
	Spec       topologySpec `json:"spec"`
}

type topologySpec struct {
	PinCPU                 bool            `json:"pinCPU" default:"true"`
	PinMemory              bool            `json:"pinMemory" default:"true"`
	PreferIsolatedCPUs     bool            `json:"preferIsolatedCPUs" default:"true"`
	PreferSharedCPUs       bool            `json:"preferSharedCPUs"`
	ColocatePods           bool            `json:"colocatePods"`
	ColocateNamespaces     bool            `json:"colocateNamespaces"`
	ReservedPoolNamespaces []string        `json:"reservedPoolNamespaces"`
	AvailableResources     policyResources `json:"availableResources"`
	ReservedResources      policyResources `json:"reservedResources"`
	UnlimitedBurstable     string          `json:"unlimitedBurstable" default:"package"`

	DefaultCPUPriority         anyNode `json:"defaultCPUPriority" none:"the priority of CPUs"`
	SchedulingClasses          anyNode `json:"schedulingClasses" none:"scheduling classes: annotations of NRI's scheduler plugin are read"`
	NamespaceSchedulingClasses anyNode `json:"namespaceSchedulingClasses" none:"scheduling classes"`
	PodQoSSchedulingClasses    anyNode `json:"podQoSSchedulingClasses" none:"scheduling classes"`
	CPUClasses                 anyNode `json:"cpuClasses" none:"CPU classes"`
	SharedPoolCPUClass         anyNode `json:"sharedPoolCPUClass" none:"CPU classes"`
	ReservedPoolCPUClass       anyNode `json:"reservedPoolCPUClass" none:"CPU classes"`
	DefaultExclusiveCPUClass   anyNode `json:"defaultExclusiveCPUClass" none:"CPU classes"`
	ControllableInterrupts     anyNode `json:"controllableInterrupts" none:"the affinity of interrupts"`
	Control                    anyNode `json:"control" none:"controllers: see hooks.rdt and hooks.blockIO"`
	Log                        anyNode `json:"log" none:"it: see log.level"`
	Instrumentation            anyNode `json:"instrumentation" none:"it: see http.address"`
	Agent                      anyNode `json:"agent" none:"it: see cluster.topology"`
}

// topologyAware converts a TopologyAwarePolicy. Unknown keys and wrong values are errors with
// file and line.
func (c *Converted) topologyAware(name string, data []byte) error {
	root, problems := document(name, data)
	if problems != nil {
		return refuse(problems)
	}
	var cr topologyPolicy
	fill(reflect.ValueOf(&cr).Elem())
	d := decoder{file: name, lines: map[string]int{}}
	d.value(root, reflect.ValueOf(&cr).Elem(), "")
	if cr.Kind != "TopologyAwarePolicy" || !strings.HasPrefix(cr.APIVersion, "config.nri/") {
		d.problem(root.Line, "kind", "want apiVersion config.nri/v1alpha1 and kind TopologyAwarePolicy, got %s and %s", quoteShort(cr.APIVersion), quoteShort(cr.Kind))
	}
	r := crReader{decoder: &d}
	r.unserved(reflect.ValueOf(cr.Spec), "spec")
	r.topology(&cr.Spec, &c.Config)
	slices.SortStableFunc(r.notes, func(a, b Problem) int { return a.Line - b.Line })
	c.Unserved = r.notes
	if len(d.problems) == 0 {
		for _, p := range Validate(c.Config) {
			at := strings.Replace(p.Path, "placement.topologyAware", "spec", 1)
			d.problem(d.nearest(at), at, "%s", p.What)
		}
	}
	return refuse(d.problems)
}

// topology puts a policy into a configuration.
func (r *crReader) topology(s *topologySpec, c *Config) {
	t := &c.Placement.TopologyAware
	c.Placement.Policy = "topology-aware"
	t.PinMemory, t.PreferIsolatedCPUs, t.PreferSharedCPUs = s.PinMemory, s.PreferIsolatedCPUs, s.PreferSharedCPUs
	t.ColocatePods, t.ColocateNamespaces, t.UnlimitedBurstable = s.ColocatePods, s.ColocateNamespaces, s.UnlimitedBurstable
	t.ReservedPoolNamespaces = []string{"kube-system"}
	for _, n := range s.ReservedPoolNamespaces {
		if !slices.Contains(t.ReservedPoolNamespaces, n) {
			t.ReservedPoolNamespaces = append(t.ReservedPoolNamespaces, n)
		}
	}
	if !s.PinCPU {
		r.note("spec.pinCPU", "has no equivalent: with mode: observe the agent decides and pins nothing")
	}
	c.Pools.Shared, _ = r.cpus(s.AvailableResources.CPU, "spec.availableResources.cpu")
	list, whole := r.cpus(s.ReservedResources.CPU, "spec.reservedResources.cpu")
	c.Pools.Reserved, c.Pools.Shared = list, cpusWithout(c.Pools.Shared, list)
	if whole > 0 {
		r.note("spec.reservedResources.cpu", "has no equivalent: write a list of %d CPUs into pools.reserved", whole)
	}
}
