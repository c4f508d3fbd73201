package config

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/internal/topology"
)

// Converted is the configuration that another system's document amounts to.
type Converted struct {
	// From names the document's kind.
	From string
	// Config has all keys; Text has those that differ from the defaults.
	Config Config
	Text   []byte
	// Unserved are the keys of the document that have no equivalent, with their lines.
	Unserved []Problem
}

// Convert converts a BalloonsPolicy or TopologyAwarePolicy of containers/nri-plugins, or a
// KubeletConfiguration with static managers. Unknown keys and wrong values of the policies are
// errors with file and line. Of the kubelet's only what concerns CPUs and memory nodes is read.
func Convert(name string, data []byte) (c Converted, err error) {
	root, problems := document(name, data)
	if problems != nil {
		return c, refuse(problems)
	}
	c.Config = Default()
	switch kind := keyOf(root, "kind"); {
	case kind != nil && kind.Value == "BalloonsPolicy":
		c.From = kind.Value
		err = c.balloons(name, data)
	case kind != nil && kind.Value == "TopologyAwarePolicy":
		c.From = kind.Value
		err = c.topologyAware(name, data)
	case kind != nil && kind.Value == "KubeletConfiguration":
		c.From = kind.Value
		k := kubeletReader{file: name, root: root, out: &c}
		k.convert()
		err = refuse(k.problems)
	default:
		return c, refuse([]Problem{{File: name, Line: root.Line, Path: "kind", What: "want one of the kinds " + strings.Join(convertible, ", ")}})
	}
	if err != nil {
		return c, err
	}
	c.Text = printChanged(c.Config)
	_, err = Parse(name, c.Text)
	return c, err
}

// convertible are the kinds of documents that 'trimtab config convert' reads.
var convertible = []string{"BalloonsPolicy", "TopologyAwarePolicy", "NodeSLO", "KubeletConfiguration"}

// IsPolicy reports whether a document is a custom resource of a policy of nri-plugins.
func IsPolicy(data []byte) bool {
	root, problems := document("", data)
	if problems != nil {
		return false
	}
	kind := keyOf(root, "kind")
	return kind != nil && (kind.Value == "BalloonsPolicy" || kind.Value == "TopologyAwarePolicy")
}

// On returns a configuration with the converted document's placement, and with its pools where it has
// lists.
func (c *Converted) On(base Config) Config {
	p := c.Config.Placement
	base.Placement.Policy, base.Placement.PolicyFile = p.Policy, ""
	base.Placement.Balloons, base.Placement.TopologyAware = p.Balloons, p.TopologyAware
	base.Pools.Reserved = cmp.Or(c.Config.Pools.Reserved, base.Pools.Reserved)
	base.Pools.Shared = cmp.Or(c.Config.Pools.Shared, base.Pools.Shared)
	return base
}

func (c *Converted) balloons(name string, data []byte) error {
	p, err := ReadBalloonsPolicy(name, data)
	if err != nil {
		return err
	}
	c.Unserved = p.Unserved
	c.Config.Placement.Policy, c.Config.Placement.Balloons = "balloons", p.Balloons
	c.Config.Pools.Reserved, c.Config.Pools.Shared = p.Reserved, p.Shared
	return nil
}

// keyOf returns the value of a key of a mapping; nil if it has none.
func keyOf(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// kubeletReader converts the keys of a KubeletConfiguration (Kubernetes 1.36) about CPUs and
// memory nodes.
type kubeletReader struct {
	file     string
	root     *yaml.Node
	out      *Converted
	problems []Problem
}

func (k *kubeletReader) note(n *yaml.Node, path, what string) {
	k.out.Unserved = append(k.out.Unserved, Problem{File: k.file, Line: n.Line, Path: path, What: what})
}

func (k *kubeletReader) convert() {
	c := &k.out.Config
	if n := keyOf(k.root, "cpuManagerPolicy"); n != nil && n.Value == "static" {
		c.Placement.Policy, c.Placement.WholeCPUs = "pools", "guaranteed"
		k.note(n, "cpuManagerPolicy", `is static: set it to "none" on this node, or keep it and set authority: kubelet instead of placement.policy`)
	}
	k.cpuOptions(keyOf(k.root, "cpuManagerPolicyOptions"))
	if n := keyOf(k.root, "reservedSystemCPUs"); n != nil {
		c.Pools.Reserved = n.Value
		if _, err := topology.ParseList(n.Value); err != nil {
			k.problems = append(k.problems, Problem{File: k.file, Line: n.Line, Path: "reservedSystemCPUs", What: err.Error()})
		}
	}
	for _, key := range []string{"kubeReserved", "systemReserved"} {
		if n := keyOf(keyOf(k.root, key), "cpu"); n != nil && c.Pools.Reserved == "" {
			k.note(n, key+".cpu", "has no equivalent: write the same number of CPUs as a list into pools.reserved")
		}
	}
	k.topology()
	if n := keyOf(k.root, "memoryManagerPolicy"); n != nil && n.Value == "Static" {
		k.note(n, "memoryManagerPolicy", `is Static: set it to "None" on this node; with placement.policy: pools memory nodes follow from CPUs`)
	}
	if n := keyOf(k.root, "reservedMemory"); n != nil {
		k.note(n, "reservedMemory", "has no equivalent: the agent reserves no memory of a NUMA node for the system")
	}
}

// cpuOptions converts the options of the static CPU manager.
func (k *kubeletReader) cpuOptions(options *yaml.Node) {
	if options == nil {
		return
	}
	for i := 0; i+1 < len(options.Content); i += 2 {
		key, v := options.Content[i], options.Content[i+1]
		if v.Value != "true" {
			continue
		}
		path := "cpuManagerPolicyOptions." + printable(key.Value)
		switch key.Value {
		case "strict-cpu-reservation":
			k.out.Config.Pools.HardReserved = true
		case "full-pcpus-only":
			k.note(v, path, "has no equivalent for all pods: the agent prefers whole cores if they fit")
		case "align-by-socket", "prefer-align-cpus-by-uncorecache":
			k.note(v, path, "needs no key: the agent always prefers CPUs of one socket and one cache")
		default:
			k.note(v, path, "has no equivalent")
		}
	}
}

// topology converts the topology manager.
func (k *kubeletReader) topology() {
	t := &k.out.Config.TopologyManager
	n := keyOf(k.root, "topologyManagerPolicy")
	if n == nil || n.Value == "none" {
		return
	}
	if k.out.Config.Placement.Policy != "pools" {
		k.note(n, "topologyManagerPolicy", "has no equivalent without a static CPU manager")
		return
	}
	t.Policy = n.Value
	if n.Value == "restricted" || n.Value == "single-numa-node" { // with these the kubelet refuses pods
		t.Refusal = "fail"
	}
	k.note(n, "topologyManagerPolicy", "is "+printable(n.Value)+`: set it to "none" on this node, since the agent does this here`)
	if s := keyOf(k.root, "topologyManagerScope"); s != nil {
		t.Scope = s.Value
	}
	options := keyOf(k.root, "topologyManagerPolicyOptions")
	if options == nil {
		return
	}
	for i := 0; i+1 < len(options.Content); i += 2 {
		key, v := options.Content[i], options.Content[i+1]
		if key.Value == "prefer-closest-numa-nodes" {
			t.PreferClosest = v.Value == "true"
			continue
		}
		k.note(v, "topologyManagerPolicyOptions."+printable(key.Value), "is not converted: see topologyManager.maxAllowableNUMANodes")
	}
}

// printChanged prints the keys of a configuration that differ from the defaults.
func printChanged(c Config) []byte {
	n := changed(reflect.ValueOf(c), reflect.ValueOf(Default()))
	for i, key := range []string{"apiVersion", "kind"} { // always there, and first
		if keyOf(n, key) == nil {
			value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: []string{APIVersion, Kind}[i]}
			n.Content = slices.Insert(n.Content, 2*i, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value)
		}
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	_ = enc.Encode(n) // into memory, from nodes made here
	_ = enc.Close()
	return b.Bytes()
}

// changed is the mapping of the keys of a section that differ from other.
func changed(v, other reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for f, fv := range v.Fields() {
		was := other.FieldByName(f.Name)
		if reflect.DeepEqual(fv.Interface(), was.Interface()) || fv.Kind() == reflect.Slice && fv.Len() == 0 && was.Len() == 0 {
			continue
		}
		value := node(fv)
		switch {
		case fv.Kind() == reflect.Struct:
			value = changed(fv, was)
		case fv.Kind() == reflect.Slice && isSections(fv.Type()):
			value = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
			for i := range fv.Len() {
				unset := reflect.New(fv.Type().Elem()).Elem()
				fill(unset)
				value.Content = append(value.Content, changed(fv.Index(i), unset))
			}
		}
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: f.Tag.Get("json")}, value)
	}
	return n
}

// policyFile reads the file that placement.policyFile names into placement.balloons or
// placement.topologyAware, and its lists of CPUs into pools.
func (m *merging) policyFile() {
	c := &m.config
	if c.Placement.PolicyFile == "" {
		return
	}
	refuse := func(format string, args ...any) {
		at := m.placeOf("placement.policyFile")
		m.problems = append(m.problems, Problem{File: at.layer, Line: at.line, Path: "placement.policyFile", What: fmt.Sprintf(format, args...)})
	}
	if !slices.Contains(policiesWithFile, c.Placement.Policy) {
		refuse("needs placement.policy: %s", strings.Join(policiesWithFile, " or "))
		return
	}
	data, err := Read(c.Placement.PolicyFile)
	if err != nil {
		refuse("%s", strings.TrimPrefix(err.Error(), "read configuration: "))
		return
	}
	read := Converted{Config: Default()}
	err = read.policy(c.Placement.Policy, c.Placement.PolicyFile, data)
	if bad, is := err.(*Error); is { //nolint:errorlint // it is not wrapped
		m.problems = append(m.problems, bad.Problems...)
		return
	}
	p := read.Config.Pools
	if c.Placement.Policy == "balloons" {
		c.Placement.Balloons = read.Config.Placement.Balloons
	} else {
		c.Placement.TopologyAware = read.Config.Placement.TopologyAware
	}
	for _, l := range []struct {
		key   string
		into  *string
		given string
	}{{"pools.reserved", &c.Pools.Reserved, p.Reserved}, {"pools.shared", &c.Pools.Shared, p.Shared}} {
		switch {
		case l.given == "" || sameList(*l.into, l.given):
		case *l.into == "":
			*l.into = l.given
		default:
			refuse("%s has CPUs %s where %s is %s: leave the latter out", c.Placement.PolicyFile, l.given, l.key, *l.into)
		}
	}
}

// sameList reports whether two lists name the same CPUs.
func sameList(a, b string) bool {
	x, errX := topology.ParseList(a)
	y, errY := topology.ParseList(b)
	return errX == nil && errY == nil && slices.Equal(x, y)
}

// unservedKeys lists the keys of the file that placement.policyFile names that have no equivalent.
func unservedKeys(c *Config) []Problem {
	text := c.PolicyText()
	if text == nil {
		return nil
	}
	read := Converted{Config: Default()}
	if err := read.policy(c.Placement.Policy, c.Placement.PolicyFile, text); err != nil {
		return nil
	}
	return read.Unserved
}

// policiesWithFile are the policies of nri-plugins, whose custom resources placement.policyFile can
// name.
var policiesWithFile = []string{"balloons", "topology-aware"}

// policy converts the custom resource of a policy.
func (c *Converted) policy(policy, name string, data []byte) error {
	if policy == "topology-aware" {
		return c.topologyAware(name, data)
	}
	return c.balloons(name, data)
}

// PolicyText returns the content of the file that placement.policyFile names; nil if there is
// none, or it cannot be read.
func (c *Config) PolicyText() []byte {
	if c.Placement.PolicyFile == "" {
		return nil
	}
	data, err := Read(c.Placement.PolicyFile)
	if err != nil {
		return nil
	}
	return data
}
