package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/topology"
)

// anyNode is a key whose value may have any form; nil if the document lacks it.
type anyNode struct{ node *yaml.Node }

// balloonsPolicy is the custom resource BalloonsPolicy of containers/nri-plugins (0.14,
// pkg/apis/config/v1alpha1).
type balloonsPolicy struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   anyNode    `json:"metadata"`
	Status     anyNode    `json:"status"`
	Spec       policySpec `json:"spec"`
}

type policySpec struct {
	PinCPU                      bool                         `json:"pinCPU" default:"true"`
	PinMemory                   bool                         `json:"pinMemory" default:"true"`
	ReservedPoolNamespaces      []string                     `json:"reservedPoolNamespaces"`
	AllocatorTopologyBalancing  bool                         `json:"allocatorTopologyBalancing"`
	PreferSpreadOnPhysicalCores bool                         `json:"preferSpreadOnPhysicalCores"`
	BalloonTypes                []policyType                 `json:"balloonTypes"`
	AvailableResources          policyResources              `json:"availableResources"`
	ReservedResources           policyResources              `json:"reservedResources"`
	Preserve                    balloons.PreserveOptions     `json:"preserve"`
	SchedulingClasses           []balloons.SchedulingOptions `json:"schedulingClasses"`

	IdleCPUClass          anyNode `json:"idleCPUClass" none:"CPU classes"`
	ShowContainersInNrt   anyNode `json:"showContainersInNrt" none:"zones for single containers"`
	LoadClasses           anyNode `json:"loadClasses" none:"load classes"`
	CPUClasses            anyNode `json:"cpuClasses" none:"CPU classes"`
	TurboDomain           anyNode `json:"turboDomain" none:"CPU classes"`
	ControllableInterrupt anyNode `json:"controllableInterrupts" none:"the affinity of interrupts"`
	Control               anyNode `json:"control" none:"controllers: see hooks.rdt and hooks.blockIO"`
	Log                   anyNode `json:"log" none:"it: see log.level"`
	Instrumentation       anyNode `json:"instrumentation" none:"it: see http.address"`
	Agent                 anyNode `json:"agent" none:"it: see cluster.topology"`
}

type policyResources struct {
	CPU    anyNode `json:"cpu"`
	Memory anyNode `json:"memory" none:"memory: nri-plugins ignores it, too"`
}

type policyType struct {
	Name                        string                       `json:"name"`
	Namespaces                  []string                     `json:"namespaces"`
	GroupBy                     string                       `json:"groupBy"`
	MatchExpressions            []balloons.ExpressionOptions `json:"matchExpressions"`
	MinCPUs                     int                          `json:"minCPUs"`
	MaxCPUs                     int                          `json:"maxCPUs"`
	MinBalloons                 int                          `json:"minBalloons"`
	MaxBalloons                 int                          `json:"maxBalloons"`
	MemoryTypes                 []string                     `json:"memoryTypes"`
	AllocatorPriority           string                       `json:"allocatorPriority" default:"high"`
	PreferNewBalloons           bool                         `json:"preferNewBalloons"`
	PreferPerNamespaceBalloon   bool                         `json:"preferPerNamespaceBalloon"`
	PreferSpreadingPods         bool                         `json:"preferSpreadingPods"`
	ShareIdleCPUsInSame         string                       `json:"shareIdleCPUsInSame"`
	Components                  []balloons.ComponentOptions  `json:"components"`
	ComponentCreation           string                       `json:"componentCreation" default:"all"`
	PreferCloseToDevices        []string                     `json:"preferCloseToDevices"`
	PreferIsolCPUs              bool                         `json:"preferIsolCpus"`
	PreferCoreType              string                       `json:"preferCoreType"`
	HideHyperthreads            bool                         `json:"hideHyperthreads"`
	SchedulingClass             string                       `json:"schedulingClass"`
	PinMemory                   anyNode                      `json:"pinMemory"`
	PreferSpreadOnPhysicalCores anyNode                      `json:"preferSpreadOnPhysicalCores"`
	AllocatorTopologyBalancing  anyNode                      `json:"allocatorTopologyBalancing"`

	CPUClass             anyNode `json:"cpuClass" none:"CPU classes"`
	Loads                anyNode `json:"loads" none:"load classes"`
	ShowContainersInNrt  anyNode `json:"showContainersInNrt" none:"zones for single containers"`
	IRQClaim             anyNode `json:"irqClaim" none:"the affinity of interrupts"`
	IRQMode              anyNode `json:"irqMode" none:"the affinity of interrupts"`
	PreferFarFromDevices anyNode `json:"preferFarFromDevices" none:"balloons near devices"`
}

// BalloonsPolicy is what a BalloonsPolicy of nri-plugins says in keys of this configuration.
type BalloonsPolicy struct {
	Balloons balloons.PolicyOptions
	// Reserved and Shared are pools.reserved and pools.shared; "" if the document has no list.
	Reserved, Shared string
	// Unserved are its keys without an equivalent, with their lines.
	Unserved []Problem
}

// ReadBalloonsPolicy reads a custom resource BalloonsPolicy. Unknown keys and wrong values are
// errors with file and line. Known keys without an equivalent are Unserved.
func ReadBalloonsPolicy(name string, data []byte) (out BalloonsPolicy, err error) {
	root, problems := document(name, data)
	if problems != nil {
		return out, refuse(problems)
	}
	var cr balloonsPolicy
	fill(reflect.ValueOf(&cr).Elem())
	d := decoder{file: name, lines: map[string]int{}}
	d.value(root, reflect.ValueOf(&cr).Elem(), "")
	if cr.Kind != "BalloonsPolicy" || !strings.HasPrefix(cr.APIVersion, "config.nri/") {
		d.problem(root.Line, "kind", "want apiVersion config.nri/v1alpha1 and kind BalloonsPolicy, got %s and %s", quoteShort(cr.APIVersion), quoteShort(cr.Kind))
	}
	c := crReader{decoder: &d}
	c.unserved(reflect.ValueOf(cr.Spec), "spec")
	out = c.convert(&cr.Spec)
	slices.SortStableFunc(c.notes, func(a, b Problem) int { return a.Line - b.Line })
	out.Unserved = c.notes
	all := Default()
	all.Placement.Balloons = out.Balloons
	if len(d.problems) == 0 {
		for _, p := range Validate(all) {
			at := strings.Replace(p.Path, "placement.balloons", "spec", 1)
			d.problem(d.nearest(at), at, "%s", p.What)
		}
	}
	return out, refuse(d.problems)
}

// nearest returns the line of a key, or of the nearest above it that the document has.
func (d *decoder) nearest(path string) int {
	for ; path != ""; path = parentOf(path) {
		if line, ok := d.lines[path]; ok {
			return line
		}
	}
	return 0
}

// crReader converts a custom resource and notes what has no equivalent.
type crReader struct {
	*decoder

	notes []Problem
}

func (r *crReader) note(path, format string, args ...any) {
	r.notes = append(r.notes, Problem{File: r.file, Line: r.nearest(path), Path: path, What: fmt.Sprintf(format, args...)})
}

// unserved notes the keys with the tag none that the document has.
func (r *crReader) unserved(v reflect.Value, path string) {
	for f, field := range v.Fields() {
		at := joinPath(path, f.Tag.Get("json"))
		switch what := f.Tag.Get("none"); {
		case what != "":
			if n := field.Interface().(anyNode).node; n != nil && !isNothing(n) {
				r.note(at, "has no equivalent: this agent has no keys for %s", what)
			}
		case field.Kind() == reflect.Struct && field.Type() != reflect.TypeFor[anyNode]():
			r.unserved(field, at)
		case field.Kind() == reflect.Slice && isSections(field.Type()):
			for i := range field.Len() {
				r.unserved(field.Index(i), fmt.Sprintf("%s[%d]", at, i))
			}
		}
	}
}

func (r *crReader) convert(s *policySpec) (out BalloonsPolicy) {
	b := &out.Balloons
	b.PinCPU, b.PinMemory, b.Preserve = s.PinCPU, s.PinMemory, s.Preserve
	b.AllocatorTopologyBalancing, b.PreferSpreadOnPhysicalCores = s.AllocatorTopologyBalancing, s.PreferSpreadOnPhysicalCores
	b.ReservedPoolNamespaces = []string{"kube-system"}
	for _, n := range s.ReservedPoolNamespaces {
		if !slices.Contains(b.ReservedPoolNamespaces, n) {
			b.ReservedPoolNamespaces = append(b.ReservedPoolNamespaces, n)
		}
	}
	if b.Preserve.MatchExpressions == nil {
		b.Preserve.MatchExpressions = []balloons.ExpressionOptions{}
	}
	if b.SchedulingClasses = s.SchedulingClasses; b.SchedulingClasses == nil {
		b.SchedulingClasses = []balloons.SchedulingOptions{}
	}
	b.BalloonTypes = []balloons.TypeOptions{}
	for i := range s.BalloonTypes {
		b.BalloonTypes = append(b.BalloonTypes, r.typeOf(&s.BalloonTypes[i], s, fmt.Sprintf("spec.balloonTypes[%d]", i)))
	}
	out.Shared, _ = r.cpus(s.AvailableResources.CPU, "spec.availableResources.cpu")
	list, whole := r.cpus(s.ReservedResources.CPU, "spec.reservedResources.cpu")
	out.Reserved = list
	out.Shared = cpusWithout(out.Shared, list)
	if whole > 0 {
		r.reserve(b, whole)
	}
	return out
}

// cpusWithout returns a list of CPUs less those of another.
func cpusWithout(list, less string) string {
	some, errSome := topology.ParseList(less)
	all, err := topology.ParseList(list)
	if errSome != nil || err != nil {
		return list
	}
	return topology.FormatList(slices.DeleteFunc(all, func(id int) bool { return slices.Contains(some, id) }))
}

// typeOf converts a type of balloons.
func (r *crReader) typeOf(t *policyType, s *policySpec, path string) balloons.TypeOptions {
	o := balloons.TypeOptions{
		Name: t.Name, Namespaces: t.Namespaces, GroupBy: t.GroupBy, MatchExpressions: t.MatchExpressions, MinCPUs: t.MinCPUs, MaxCPUs: t.MaxCPUs,
		MinBalloons: t.MinBalloons, MaxBalloons: t.MaxBalloons, MemoryTypes: t.MemoryTypes, AllocatorPriority: t.AllocatorPriority,
		PreferNewBalloons: t.PreferNewBalloons, PreferPerNamespaceBalloon: t.PreferPerNamespaceBalloon, PreferSpreadingPods: t.PreferSpreadingPods,
		HideHyperthreads: t.HideHyperthreads, ShareIdleCPUsInSame: t.ShareIdleCPUsInSame,
		Components: t.Components, ComponentCreation: t.ComponentCreation, PreferIsolCPUs: t.PreferIsolCPUs, PreferCoreType: t.PreferCoreType,
		PreferCloseToDevices: []string{}, SchedulingClass: t.SchedulingClass,
	}
	for i, device := range t.PreferCloseToDevices {
		if strings.HasPrefix(device, "podresourceapi:") {
			r.note(fmt.Sprintf("%s.preferCloseToDevices[%d]", path, i), "has no equivalent: paths below /sys/devices are read")
			continue
		}
		o.PreferCloseToDevices = append(o.PreferCloseToDevices, device)
	}
	if v, set := r.optionalBool(t.PinMemory, path+".pinMemory"); set {
		o.PinMemory = map[bool]string{true: "always", false: "never"}[v]
	}
	for _, k := range []struct {
		key    string
		node   anyNode
		policy bool
		into   *bool
	}{
		{".preferSpreadOnPhysicalCores", t.PreferSpreadOnPhysicalCores, s.PreferSpreadOnPhysicalCores, &o.PreferSpreadOnPhysicalCores},
		{".allocatorTopologyBalancing", t.AllocatorTopologyBalancing, s.AllocatorTopologyBalancing, &o.AllocatorTopologyBalancing},
	} {
		v, set := r.optionalBool(k.node, path+k.key)
		if *k.into = v; set && !v && k.policy {
			r.note(path+k.key, "has no equivalent: a type cannot switch off what the policy switches on")
		}
	}
	return o
}

// optionalBool reads a truth value that may be missing.
func (r *crReader) optionalBool(n anyNode, path string) (v, set bool) {
	if n.node == nil || isNothing(n.node) {
		return false, false
	}
	r.value(n.node, reflect.ValueOf(&v).Elem(), path)
	return v, true
}

// cpus reads an amount of CPUs: a list after "cpuset:", or a quantity, of which it returns the
// whole CPUs, rounded up.
func (r *crReader) cpus(n anyNode, path string) (list string, whole int) {
	if n.node == nil || isNothing(n.node) {
		return "", 0
	}
	text := strings.TrimSpace(n.node.Value)
	if n.node.Kind != yaml.ScalarNode {
		r.problem(n.node.Line, path, "want an amount of CPUs, got %s", describe(n.node))
		return "", 0
	}
	if list, is := strings.CutPrefix(text, "cpuset:"); is {
		if _, err := topology.ParseList(list); err != nil {
			r.problem(n.node.Line, path, "%v", err)
		}
		return list, 0
	}
	if strings.HasPrefix(text, "exclude-cpuset:") {
		r.note(path, "has no equivalent: write the list of CPUs into pools.reserved or pools.shared")
		return "", 0
	}
	milli, is := strings.CutSuffix(text, "m")
	amount, err := strconv.ParseFloat(milli, 64)
	switch {
	case err != nil || amount < 0 || amount > topology.MaxCPUs*milliOfCPU:
		r.problem(n.node.Line, path, "is %s: want a quantity, or a list such as cpuset:0-1", quoteShort(text))
		return "", 0
	case !is:
		amount *= milliOfCPU
	}
	if path == "spec.availableResources.cpu" {
		r.problem(n.node.Line, path, "is a quantity: want a list such as cpuset:0-7")
	}
	return "", (int(amount) + milliOfCPU - 1) / milliOfCPU
}

// milliOfCPU are the milli-CPUs of one CPU.
const milliOfCPU = 1000

// reserve gives the type reserved a number of CPUs.
func (r *crReader) reserve(b *balloons.PolicyOptions, whole int) {
	for i := range b.BalloonTypes {
		t := &b.BalloonTypes[i]
		switch {
		case t.Name != "reserved":
		case t.MinCPUs != 0 && t.MinCPUs != whole:
			path := fmt.Sprintf("spec.balloonTypes[%d].minCPUs", i)
			r.problem(r.nearest(path), path, "is %d, and reservedResources.cpu is %d CPUs", t.MinCPUs, whole)
		default:
			t.MinCPUs = whole
		}
		if t.Name == "reserved" {
			return
		}
	}
	t := balloons.TypeOptions{}
	fill(reflect.ValueOf(&t).Elem())
	t.Name, t.MinCPUs, t.MinBalloons, t.MaxBalloons, t.AllocatorPriority = "reserved", whole, 1, 1, "low"
	b.BalloonTypes = append([]balloons.TypeOptions{t}, b.BalloonTypes...)
}
