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

// policyResource is the custom resource of a policy of containers/nri-plugins (0.14,
// pkg/apis/config/v1alpha1).
type policyResource[S any] struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Metadata   anyNode `json:"metadata"`
	Status     anyNode `json:"status"`
	Spec       S       `json:"spec"`
}

// balloonsSpec has the keys of the section placement.balloons, and those that only the custom resource has.
type balloonsSpec struct {
	balloons.PolicyOptions
	policyKeys
	BalloonTypes []balloonType    `json:"balloonTypes"`
	CPUClasses   []policyCPUClass `json:"cpuClasses"`

	ShowContainersInNrt anyNode `json:"showContainersInNrt" none:"zones for single containers"`
	TurboDomain         anyNode `json:"turboDomain" none:"priorities of CPU classes"`
}

// policyKeys are the keys that the custom resources of both policies have, and our own sections lack.
type policyKeys struct {
	AvailableResources policyResources `json:"availableResources"`
	ReservedResources  policyResources `json:"reservedResources"`

	ControllableInterrupts anyNode `json:"controllableInterrupts" none:"the affinity of interrupts"`
	Control                anyNode `json:"control" instead:"hooks.rdt and hooks.blockIO"`
	Log                    anyNode `json:"log" instead:"log.level"`
	Instrumentation        anyNode `json:"instrumentation" instead:"http.address"`
	Agent                  anyNode `json:"agent" instead:"cluster.topology"`
}

type policyResources struct {
	CPU    anyNode `json:"cpu"`
	Memory anyNode `json:"memory" none:"memory: nri-plugins ignores it, too"`
}

// balloonType is a balloon type in the custom resource. It has the keys of Trimtab's balloon types; the values of some
// have another form.
type balloonType struct {
	balloons.TypeOptions
	PinMemory                   anyNode `json:"pinMemory"`
	PreferSpreadOnPhysicalCores anyNode `json:"preferSpreadOnPhysicalCores"`
	AllocatorTopologyBalancing  anyNode `json:"allocatorTopologyBalancing"`

	ShowContainersInNrt  anyNode `json:"showContainersInNrt" none:"zones for single containers"`
	IRQClaim             anyNode `json:"irqClaim" none:"the affinity of interrupts"`
	IRQMode              anyNode `json:"irqMode" none:"the affinity of interrupts"`
	PreferFarFromDevices anyNode `json:"preferFarFromDevices" none:"balloons near devices"`
}

// readPolicy reads a custom resource of a policy, whose spec convert puts into a section of c.Config. Unknown keys and wrong
// values are errors with file and line. Known keys without an equivalent are c.Unserved.
func readPolicy[S any](c *Converted, name string, data []byte, kind, section string, convert func(*crReader, *S, *Config)) error {
	root, problems := document(name, data)
	if problems != nil {
		return refuse(problems)
	}
	var cr policyResource[S]
	fillDefaults(reflect.ValueOf(&cr).Elem())
	d := decoder{file: name, lines: map[string]int{}}
	d.value(root, reflect.ValueOf(&cr).Elem(), "")
	if cr.Kind != kind || !strings.HasPrefix(cr.APIVersion, "config.nri/") {
		d.problem(root.Line, "kind", "want apiVersion config.nri/v1alpha1 and kind %s, got %s and %s", kind, quoteShort(cr.APIVersion), quoteShort(cr.Kind))
	}
	r := crReader{decoder: &d}
	r.noteUnserved(reflect.ValueOf(cr.Spec), "spec")
	convert(&r, &cr.Spec, &c.Config)
	slices.SortStableFunc(r.notes, func(a, b Problem) int { return a.Line - b.Line })
	c.Unserved = r.notes
	if len(d.problems) == 0 {
		for _, p := range Validate(c.Config) {
			at := strings.Replace(p.Path, section, "spec", 1)
			d.problem(d.nearest(at), at, "%s", p.What)
		}
	}
	return refuse(d.problems)
}

// withKubeSystem adds kube-system to the namespaces whose containers use the reserved CPUs, as nri-plugins always does.
func withKubeSystem(others []string) []string {
	all := []string{"kube-system"}
	for _, n := range others {
		if !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all
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

// noteUnserved notes the keys that the document has and that are not converted. The tag none of such a key says for what
// Trimtab has no keys, and the tag instead names the keys to set instead.
func (r *crReader) noteUnserved(v reflect.Value, path string) {
	for f, field := range v.Fields() {
		at := strings.TrimSuffix(joinPath(path, f.Tag.Get("json")), ".") // an embedded field has no key
		what, instead := f.Tag.Get("none"), f.Tag.Get("instead")
		switch {
		case what+instead != "":
			if n := field.Interface().(anyNode).node; n == nil || isNull(n) {
				continue
			}
			if instead != "" {
				r.note(at, "is not converted: set %s instead", instead)
				continue
			}
			r.note(at, "has no equivalent: this agent has no keys for %s", what)
		case field.Kind() == reflect.Struct && field.Type() != reflect.TypeFor[anyNode]():
			r.noteUnserved(field, at)
		case field.Kind() == reflect.Slice && isSections(field.Type()):
			for i := range field.Len() {
				r.noteUnserved(field.Index(i), fmt.Sprintf("%s[%d]", at, i))
			}
		}
	}
}

// balloons puts a policy into a configuration.
func (r *crReader) balloons(s *balloonsSpec, c *Config) {
	b := &c.Placement.Balloons
	c.Placement.Policy, *b = "balloons", s.PolicyOptions
	b.ReservedPoolNamespaces = withKubeSystem(s.ReservedPoolNamespaces)
	b.CPUClasses, b.IdleCPUClass = r.cpuClasses(s.CPUClasses), r.knownClass(s.IdleCPUClass, s, "spec.idleCPUClass")
	for i := range s.BalloonTypes {
		b.BalloonTypes = append(b.BalloonTypes, r.typeOf(&s.BalloonTypes[i], s, fmt.Sprintf("spec.balloonTypes[%d]", i)))
	}
	if whole := r.pools(&s.policyKeys, &c.Pools); whole > 0 {
		r.reserve(b, whole)
	}
}

// pools sets pools.shared and pools.reserved to the CPUs that a policy may use and that it reserves. whole is how many
// CPUs it reserves, if it has a number instead of a list.
func (r *crReader) pools(s *policyKeys, p *Pools) (whole int) {
	p.Shared, _ = r.cpus(s.AvailableResources.CPU, "spec.availableResources.cpu")
	p.Reserved, whole = r.cpus(s.ReservedResources.CPU, "spec.reservedResources.cpu")
	p.Shared = cpusWithout(p.Shared, p.Reserved)
	return whole
}

// cpusWithout returns a list of CPUs without the CPUs of another list.
func cpusWithout(list, excluded string) string {
	without, errWithout := topology.ParseList(excluded)
	all, err := topology.ParseList(list)
	if errWithout != nil || err != nil {
		return list
	}
	return topology.FormatList(slices.DeleteFunc(all, func(id int) bool { return slices.Contains(without, id) }))
}

// typeOf converts a type of balloons.
func (r *crReader) typeOf(t *balloonType, s *balloonsSpec, path string) balloons.TypeOptions {
	o := t.TypeOptions
	o.CPUClass = r.knownClass(t.CPUClass, s, path+".cpuClass")
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
	if n.node == nil || isNull(n.node) {
		return false, false
	}
	r.value(n.node, reflect.ValueOf(&v).Elem(), path)
	return v, true
}

// cpus reads an amount of CPUs: a list after "cpuset:", or a quantity, of which it returns the
// whole CPUs, rounded up.
func (r *crReader) cpus(n anyNode, path string) (list string, whole int) {
	if n.node == nil || isNull(n.node) {
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
	i := slices.IndexFunc(b.BalloonTypes, func(t balloons.TypeOptions) bool { return t.Name == "reserved" })
	if i < 0 {
		t := balloons.TypeOptions{}
		fillDefaults(reflect.ValueOf(&t).Elem())
		t.Name, t.MinBalloons, t.MaxBalloons, t.AllocatorPriority = "reserved", 1, 1, "low"
		b.BalloonTypes, i = slices.Insert(b.BalloonTypes, 0, t), 0
	}
	t := &b.BalloonTypes[i]
	if t.MinCPUs != 0 && t.MinCPUs != whole {
		path := fmt.Sprintf("spec.balloonTypes[%d].minCPUs", i)
		r.problem(r.nearest(path), path, "is %d, but reservedResources.cpu is %d CPUs: make both equal, or remove one", t.MinCPUs, whole)
		return
	}
	t.MinCPUs = whole
}
