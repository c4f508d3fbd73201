package config

import (
	"cmp"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/internal/topology"
)

// Converted is the configuration that has the same meaning as a document of another system.
type Converted struct {
	// From is the document's kind, such as "BalloonsPolicy".
	From string
	// Config is the configuration with all keys. Text is the same configuration as YAML, with only the keys that differ
	// from the defaults.
	Config Config
	Text   []byte
	// Unconverted are the keys of the document that have no equivalent in Trimtab or are not converted, with their
	// lines.
	Unconverted []Problem
}

// Convert converts a document of another system: a BalloonsPolicy or TopologyAwarePolicy of containers/nri-plugins, or
// a KubeletConfiguration. In the two policies, unknown keys and wrong values are errors with file and line. From a
// KubeletConfiguration, Convert reads only the keys about CPUs and memory nodes.
func Convert(name string, data []byte) (c Converted, err error) {
	root, problems := parseDocument(name, data)
	if problems != nil {
		return c, errorOf(problems)
	}
	c.Config = Default()
	if kind := valueOfKey(root, "kind"); kind != nil {
		c.From = kind.Value
	}
	switch c.From {
	case "BalloonsPolicy":
		err = c.convertPolicy("balloons", name, data)
	case "TopologyAwarePolicy":
		err = c.convertPolicy("topology-aware", name, data)
	case "KubeletConfiguration":
		k := kubeletReader{file: name, root: root, out: &c}
		k.convert()
		err = errorOf(k.problems)
	default:
		return c, errorOf([]Problem{{File: name, Line: root.Line, Path: "kind", What: "want one of the kinds " + strings.Join(convertibleKinds, ", ")}})
	}
	if err != nil {
		return c, err
	}
	c.Text = printChanged(c.Config)
	_, err = Parse(name, c.Text)
	return c, err
}

// convertibleKinds are the kinds of documents that 'trimtab config convert' reads.
var convertibleKinds = []string{"BalloonsPolicy", "TopologyAwarePolicy", "NodeSLO", "KubeletConfiguration"}

// IsPolicy reports whether a document is a BalloonsPolicy or TopologyAwarePolicy of nri-plugins.
func IsPolicy(data []byte) bool {
	root, problems := parseDocument("", data)
	if problems != nil {
		return false
	}
	kind := valueOfKey(root, "kind")
	return kind != nil && (kind.Value == "BalloonsPolicy" || kind.Value == "TopologyAwarePolicy")
}

// ApplyTo returns base with the placement of the converted document, and with the document's lists of CPUs in
// pools.reserved and pools.shared. If a list of the document is empty, base keeps its own list.
func (c *Converted) ApplyTo(base Config) Config {
	p := c.Config.Placement
	base.Placement.Policy, base.Placement.PolicyFile = p.Policy, ""
	base.Placement.Balloons, base.Placement.TopologyAware = p.Balloons, p.TopologyAware
	base.Pools.Reserved = cmp.Or(c.Config.Pools.Reserved, base.Pools.Reserved)
	base.Pools.Shared = cmp.Or(c.Config.Pools.Shared, base.Pools.Shared)
	return base
}

// yamlPairs iterates over the keys and values of a YAML mapping. It iterates over nothing if n is nil or not a mapping.
func yamlPairs(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for pair := range slices.Chunk(n.Content, 2) {
			if !yield(pair[0], pair[1]) {
				return
			}
		}
	}
}

// valueOfKey returns the value of a key of a YAML mapping; nil if the mapping lacks the key.
func valueOfKey(n *yaml.Node, key string) *yaml.Node {
	for k, value := range yamlPairs(n) {
		if k.Value == key {
			return value
		}
	}
	return nil
}

// kubeletReader converts a KubeletConfiguration (Kubernetes 1.36): its keys about CPUs and memory
// nodes.
type kubeletReader struct {
	file     string     // the name of the file, for messages
	root     *yaml.Node // the document
	out      *Converted // the result
	problems []Problem
}

// noteUnconverted adds a key to the list of keys that the user must handle.
func (k *kubeletReader) noteUnconverted(n *yaml.Node, path, what string) {
	k.out.Unconverted = append(k.out.Unconverted, Problem{File: k.file, Line: n.Line, Path: path, What: what})
}

// convert writes the converted keys to the result.
func (k *kubeletReader) convert() {
	c := &k.out.Config
	if n := valueOfKey(k.root, "cpuManagerPolicy"); n != nil && n.Value == "static" {
		c.Placement.Policy, c.Placement.WholeCPUs = "pools", "guaranteed"
		k.noteUnconverted(n, "cpuManagerPolicy", `is static: set it to "none" on this node, or keep it and set authority: kubelet instead of placement.policy`)
	}
	k.convertCPUOptions(valueOfKey(k.root, "cpuManagerPolicyOptions"))
	if n := valueOfKey(k.root, "reservedSystemCPUs"); n != nil {
		c.Pools.Reserved = n.Value
		if _, err := topology.ParseList(n.Value); err != nil {
			k.problems = append(k.problems, Problem{File: k.file, Line: n.Line, Path: "reservedSystemCPUs", What: err.Error()})
		}
	}
	for _, key := range []string{"kubeReserved", "systemReserved"} {
		if n := valueOfKey(valueOfKey(k.root, key), "cpu"); n != nil && c.Pools.Reserved == "" {
			k.noteUnconverted(n, key+".cpu", "has no equivalent: write the same number of CPUs as a list into pools.reserved")
		}
	}
	k.convertTopologyManager()
	if n := valueOfKey(k.root, "memoryManagerPolicy"); n != nil && n.Value == "Static" {
		k.noteUnconverted(n, "memoryManagerPolicy", `is Static: set it to "None" on this node; with placement.policy: pools the agent sets the memory nodes of the CPUs`)
	}
	if n := valueOfKey(k.root, "reservedMemory"); n != nil {
		k.noteUnconverted(n, "reservedMemory", "has no equivalent: the agent reserves no memory of a NUMA node for the system")
	}
}

// convertCPUOptions converts the options of the static CPU manager.
func (k *kubeletReader) convertCPUOptions(options *yaml.Node) {
	for key, v := range yamlPairs(options) {
		if v.Value != "true" {
			continue
		}
		path := "cpuManagerPolicyOptions." + printable(key.Value)
		switch key.Value {
		case "strict-cpu-reservation":
			k.out.Config.Pools.HardReserved = true
		case "full-pcpus-only":
			k.noteUnconverted(v, path, "has no equivalent for all pods: the agent prefers whole cores if they fit")
		case "align-by-socket", "prefer-align-cpus-by-uncorecache":
			k.noteUnconverted(v, path, "needs no key: the agent always prefers CPUs of one socket and one cache")
		default:
			k.noteUnconverted(v, path, "has no equivalent")
		}
	}
}

// convertTopologyManager converts the settings of the kubelet's topology manager.
func (k *kubeletReader) convertTopologyManager() {
	t := &k.out.Config.TopologyManager
	n := valueOfKey(k.root, "topologyManagerPolicy")
	if n == nil || n.Value == "none" {
		return
	}
	if k.out.Config.Placement.Policy != "pools" {
		k.noteUnconverted(n, "topologyManagerPolicy", "has no equivalent without a static CPU manager")
		return
	}
	t.Policy = n.Value
	if n.Value == "restricted" || n.Value == "single-numa-node" { // with these policies the kubelet refuses pods
		t.Refusal = "fail"
	}
	k.noteUnconverted(n, "topologyManagerPolicy", "is "+printable(n.Value)+`: set it to "none" on this node, because topologyManager.policy of the agent replaces it`)
	if s := valueOfKey(k.root, "topologyManagerScope"); s != nil {
		t.Scope = s.Value
	}
	for key, v := range yamlPairs(valueOfKey(k.root, "topologyManagerPolicyOptions")) {
		if key.Value == "prefer-closest-numa-nodes" {
			t.PreferClosest = v.Value == "true"
			continue
		}
		k.noteUnconverted(v, "topologyManagerPolicyOptions."+printable(key.Value), "is not converted: the equivalent of max-allowable-numa-nodes is topologyManager.maxAllowableNUMANodes; other options than this one and prefer-closest-numa-nodes have no equivalent")
	}
}

// printChanged returns the keys of a configuration that differ from the defaults, as YAML.
func printChanged(c Config) []byte {
	n := yamlNode(reflect.ValueOf(c), reflect.ValueOf(Default()))
	for i, key := range []string{"apiVersion", "kind"} { // the file must begin with these two keys
		if valueOfKey(n, key) == nil {
			n.Content = slices.Insert(n.Content, 2*i, textNode(key), textNode([]string{APIVersion, Kind}[i]))
		}
	}
	return encodeYAML(n)
}

// mergePolicyFile reads the file that placement.policyFile names. It stores the file's policy in
// placement.balloons or placement.topologyAware, and the file's lists of CPUs in the section pools.
func (m *merger) mergePolicyFile() {
	c := &m.config
	if c.Placement.PolicyFile == "" {
		return
	}
	refuse := func(format string, args ...any) {
		at := m.positionOf("placement.policyFile")
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
	err = read.convertPolicy(c.Placement.Policy, c.Placement.PolicyFile, data)
	if bad, is := err.(*Error); is { //nolint:errorlint // convertPolicy never wraps its *Error
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
		key        string
		into       *string
		fromPolicy string
	}{{"pools.reserved", &c.Pools.Reserved, p.Reserved}, {"pools.shared", &c.Pools.Shared, p.Shared}} {
		switch {
		case l.fromPolicy == "" || isSameCPUList(*l.into, l.fromPolicy):
		case *l.into == "":
			*l.into = l.fromPolicy
		default:
			refuse("%s lists CPUs %s, but %s is %s: remove %s", c.Placement.PolicyFile, l.fromPolicy, l.key, *l.into, l.key)
		}
	}
}

// isSameCPUList reports whether two kernel lists contain the same CPUs.
func isSameCPUList(a, b string) bool {
	x, errX := topology.ParseList(a)
	y, errY := topology.ParseList(b)
	return errX == nil && errY == nil && slices.Equal(x, y)
}

// unconvertedKeys lists the keys of the file at placement.policyFile that have no equivalent in Trimtab or are not
// converted.
func unconvertedKeys(c *Config) []Problem {
	read := Converted{Config: Default()}
	if err := read.convertPolicy(c.Placement.Policy, c.Placement.PolicyFile, c.PolicyText()); err != nil {
		return nil
	}
	return read.Unconverted
}

// policiesWithFile are the values of placement.policy with which placement.policyFile can name a
// custom resource of nri-plugins.
var policiesWithFile = []string{"balloons", "topology-aware"}

// convertPolicy converts a custom resource of nri-plugins. The parameter kind is a value of placement.policy.
func (c *Converted) convertPolicy(kind, name string, data []byte) error {
	if kind == "topology-aware" {
		return readPolicy(c, name, data, "TopologyAwarePolicy", "placement.topologyAware", (*crReader).convertTopologyAware)
	}
	return readPolicy(c, name, data, "BalloonsPolicy", "placement.balloons", (*crReader).convertBalloons)
}

// PolicyText returns the content of the file that placement.policyFile names; nil if the key is
// empty or the file cannot be read.
func (c *Config) PolicyText() []byte {
	data, _ := Read(c.Placement.PolicyFile)
	return data
}
