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

// anyNode is a key whose value may have any form. Its node is nil if the document lacks the key.
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

// balloonsSpec is the spec of a BalloonsPolicy. It has the keys of the section placement.balloons, and keys that only
// the custom resource has.
type balloonsSpec struct {
	balloons.PolicyOptions
	policyKeys
	BalloonTypes []balloonType    `json:"balloonTypes"`
	CPUClasses   []policyCPUClass `json:"cpuClasses"`

	ShowContainersInNrt anyNode `json:"showContainersInNrt" none:"zones for single containers"`
	TurboDomain         anyNode `json:"turboDomain" none:"priorities of CPU classes"`
}

// policyKeys are the keys that the custom resources of both policies have, and Trimtab's sections lack.
type policyKeys struct {
	AvailableResources policyResources `json:"availableResources"`
	ReservedResources  policyResources `json:"reservedResources"`

	ControllableInterrupts anyNode `json:"controllableInterrupts" none:"the affinity of interrupts"`
	Control                anyNode `json:"control" instead:"hooks.rdt and hooks.blockIO"`
	Log                    anyNode `json:"log" instead:"log.level"`
	Instrumentation        anyNode `json:"instrumentation" instead:"http.address"`
	Agent                  anyNode `json:"agent" instead:"cluster.topology"`
}

// policyResources are the CPUs and the memory that a policy may use or that it reserves.
type policyResources struct {
	CPU    anyNode `json:"cpu"`
	Memory anyNode `json:"memory" none:"memory: nri-plugins ignores it, too"`
}

// balloonType is a balloon type in the custom resource. It has the keys of Trimtab's balloon types, but the values of
// some keys have another form.
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

// readPolicy reads a custom resource of the given kind. The function convert writes the spec to a section of c.Config,
// and section is the path of that section. Unknown keys and wrong values are errors with file and line. readPolicy
// stores known keys that have no equivalent, or are not converted, in c.Unconverted.
func readPolicy[S any](c *Converted, name string, data []byte, kind, section string, convert func(*crReader, *S, *Config)) error {
	root, problems := parseDocument(name, data)
	if problems != nil {
		return errorOf(problems)
	}
	var cr policyResource[S]
	fillDefaults(reflect.ValueOf(&cr).Elem())
	d := decoder{file: name, lines: map[string]int{}}
	d.decodeValue(root, reflect.ValueOf(&cr).Elem(), "")
	if cr.Kind != kind || !strings.HasPrefix(cr.APIVersion, "config.nri/") {
		d.addProblem(root.Line, "kind", "want apiVersion config.nri/v1alpha1 and kind %s, got %s and %s", kind, quoteShort(cr.APIVersion), quoteShort(cr.Kind))
	}
	r := crReader{decoder: &d}
	r.noteTaggedKeys(reflect.ValueOf(cr.Spec), "spec")
	convert(&r, &cr.Spec, &c.Config)
	slices.SortStableFunc(r.unconverted, func(a, b Problem) int { return a.Line - b.Line })
	c.Unconverted = r.unconverted
	if len(d.problems) == 0 {
		for _, p := range Validate(c.Config) {
			at := strings.Replace(p.Path, section, "spec", 1)
			d.addProblem(d.lineOf(at), at, "%s", p.What)
		}
	}
	return errorOf(d.problems)
}

// withKubeSystem adds kube-system to the namespaces whose containers use the reserved CPUs. nri-plugins always adds it,
// too.
func withKubeSystem(others []string) []string {
	all := []string{"kube-system"}
	for _, n := range others {
		if !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all
}

// lineOf returns the line of the key at path. If the document lacks the key, it returns the line of the nearest section
// that contains the key, or 0 if the document also lacks these sections.
func (d *decoder) lineOf(path string) int {
	for ; path != ""; path = parentOf(path) {
		if line, ok := d.lines[path]; ok {
			return line
		}
	}
	return 0
}

// crReader converts a custom resource of nri-plugins.
type crReader struct {
	*decoder

	unconverted []Problem // keys that have no equivalent or are not converted
}

// noteUnconverted adds a key to unconverted.
func (r *crReader) noteUnconverted(path, format string, args ...any) {
	r.unconverted = append(r.unconverted, Problem{File: r.file, Line: r.lineOf(path), Path: path, What: fmt.Sprintf(format, args...)})
}

// noteTaggedKeys adds to unconverted the keys of the document whose fields have the tag "none" or "instead". Trimtab
// does not convert such keys. The tag "none" names the feature that Trimtab lacks. The tag "instead" names the keys of
// Trimtab that replace the key.
func (r *crReader) noteTaggedKeys(v reflect.Value, path string) {
	for f, field := range v.Fields() {
		at := strings.TrimSuffix(joinPath(path, f.Tag.Get("json")), ".") // an embedded field has no key
		what, instead := f.Tag.Get("none"), f.Tag.Get("instead")
		switch {
		case what+instead != "":
			if n := field.Interface().(anyNode).node; n == nil || isNull(n) {
				continue
			}
			if instead != "" {
				r.noteUnconverted(at, "is not converted: set %s instead", instead)
				continue
			}
			r.noteUnconverted(at, "has no equivalent: this agent has no keys for %s", what)
		case field.Kind() == reflect.Struct && field.Type() != reflect.TypeFor[anyNode]():
			r.noteTaggedKeys(field, at)
		case field.Kind() == reflect.Slice && isSectionList(field.Type()):
			for i := range field.Len() {
				r.noteTaggedKeys(field.Index(i), fmt.Sprintf("%s[%d]", at, i))
			}
		}
	}
}

// convertBalloons writes the spec of a BalloonsPolicy to a configuration.
func (r *crReader) convertBalloons(s *balloonsSpec, c *Config) {
	b := &c.Placement.Balloons
	c.Placement.Policy, *b = "balloons", s.PolicyOptions
	b.ReservedPoolNamespaces = withKubeSystem(s.ReservedPoolNamespaces)
	b.CPUClasses, b.IdleCPUClass = r.convertCPUClasses(s.CPUClasses), r.knownCPUClass(s.IdleCPUClass, s, "spec.idleCPUClass")
	for i := range s.BalloonTypes {
		b.BalloonTypes = append(b.BalloonTypes, r.convertBalloonType(&s.BalloonTypes[i], s, fmt.Sprintf("spec.balloonTypes[%d]", i)))
	}
	if whole := r.convertPools(&s.policyKeys, &c.Pools); whole > 0 {
		r.reserveCPUs(b, whole)
	}
}

// convertPools sets pools.shared to the CPUs that a policy may use, and pools.reserved to the CPUs that the policy
// reserves. If the policy has a number of reserved CPUs instead of a list, convertPools returns this number.
func (r *crReader) convertPools(s *policyKeys, p *Pools) (whole int) {
	p.Shared, _ = r.parseCPUs(s.AvailableResources.CPU, "spec.availableResources.cpu")
	p.Reserved, whole = r.parseCPUs(s.ReservedResources.CPU, "spec.reservedResources.cpu")
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

// convertBalloonType converts a balloon type of the custom resource to a balloon type of Trimtab.
func (r *crReader) convertBalloonType(t *balloonType, s *balloonsSpec, path string) balloons.TypeOptions {
	o := t.TypeOptions
	o.CPUClass = r.knownCPUClass(t.CPUClass, s, path+".cpuClass")
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
			r.noteUnconverted(path+k.key, "has no equivalent: a balloon type cannot switch off this key if the policy switches it on")
		}
	}
	return o
}

// optionalBool reads a bool that may be missing. The result isSet reports whether the document has the key.
func (r *crReader) optionalBool(n anyNode, path string) (v, isSet bool) {
	if n.node == nil || isNull(n.node) {
		return false, false
	}
	r.decodeValue(n.node, reflect.ValueOf(&v).Elem(), path)
	return v, true
}

// parseCPUs reads an amount of CPUs. If the value is "cpuset:LIST", it returns the list. If the value is a quantity, it
// returns the number of CPUs, rounded up.
func (r *crReader) parseCPUs(n anyNode, path string) (list string, whole int) {
	if n.node == nil || isNull(n.node) {
		return "", 0
	}
	text := strings.TrimSpace(n.node.Value)
	if n.node.Kind != yaml.ScalarNode {
		r.addProblem(n.node.Line, path, "want an amount of CPUs, got %s", describeNode(n.node))
		return "", 0
	}
	if list, is := strings.CutPrefix(text, "cpuset:"); is {
		if _, err := topology.ParseList(list); err != nil {
			r.addProblem(n.node.Line, path, "%v", err)
		}
		return list, 0
	}
	if strings.HasPrefix(text, "exclude-cpuset:") {
		r.noteUnconverted(path, "has no equivalent: write the list of CPUs into pools.reserved or pools.shared")
		return "", 0
	}
	milli, is := strings.CutSuffix(text, "m")
	amount, err := strconv.ParseFloat(milli, 64)
	switch {
	case err != nil || amount < 0 || amount > topology.MaxCPUs*milliCPUsPerCPU:
		r.addProblem(n.node.Line, path, "is %s: want a quantity, or a list such as cpuset:0-1", quoteShort(text))
		return "", 0
	case !is:
		amount *= milliCPUsPerCPU
	}
	if path == "spec.availableResources.cpu" {
		r.addProblem(n.node.Line, path, "is a quantity: want a list such as cpuset:0-7")
	}
	return "", (int(amount) + milliCPUsPerCPU - 1) / milliCPUsPerCPU
}

// milliCPUsPerCPU is the number of milli-CPUs in one CPU.
const milliCPUsPerCPU = 1000

// reserveCPUs sets the number of CPUs of the balloon type "reserved". It adds the type if the document lacks it.
func (r *crReader) reserveCPUs(b *balloons.PolicyOptions, whole int) {
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
		r.addProblem(r.lineOf(path), path, "is %d, but reservedResources.cpu is %d CPUs: make both equal, or remove one", t.MinCPUs, whole)
		return
	}
	t.MinCPUs = whole
}
