package config

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/rules"
	"github.com/trimtab/trimtab/internal/topology"
)

// rule is the condition that a value must meet in addition to its type. Validation,
// schema and docs use the same rules.
type rule struct {
	choices        []string              // the valid values of a text, or of each element of a list
	otherSpellings []string              // other spellings of choices, which respell replaces
	pattern        string                // a regular expression that the text must match; "" for none
	matches        func(s string) bool   // whether s matches pattern, which is compiled at the first use; nil without pattern
	description    string                // describes the valid values for users
	check          func(s string) string // what is wrong with a text, or ""; nil if only the pattern is checked
	maxBytes       int                   // the most bytes of a text, also maxLength in the schema; 0 for no limit
	required       bool                  // whether a list must have at least one element
	min, max       int                   // the bounds of an integer; no bounds if both are 0
}

// keyRules returns the rule of every key that has a rule, by the key's path. The tag "check" of a field is the rule of
// its key: "one|two" for values, "1..10" for a range, otherwise the name of a rule in namedRules. Callers share the map
// and must not change it.
var keyRules = sync.OnceValue(readRules)

// readRules makes the map of keyRules from the tags "check".
func readRules() map[string]rule {
	all, named := map[string]rule{}, namedRules()
	for name, r := range named {
		r.matches = patternMatcher(r.pattern)
		named[name] = r
	}
	visitFields(keySample(), "", func(path string, f reflect.StructField, _ reflect.Type, _ reflect.Value) {
		if tag, ok := f.Tag.Lookup("check"); ok {
			r := ruleOf(tag, named)
			r.otherSpellings = otherSpellings(f)
			all[withoutIndexes(path)] = r
		}
	})
	return all
}

// patternMatcher returns a function that reports whether a text matches a pattern; nil without a pattern. The first
// call of the function compiles the pattern.
func patternMatcher(pattern string) func(string) bool {
	if pattern == "" {
		return nil
	}
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
	return func(s string) bool { return compiled().MatchString(s) }
}

// ruleOf returns the rule of a tag "check". The parameter named has the rules of namedRules.
func ruleOf(tag string, named map[string]rule) rule {
	if r, ok := named[tag]; ok {
		return r
	}
	if low, high, ok := strings.Cut(tag, ".."); ok {
		least, errLow := strconv.Atoi(low)
		most, errHigh := strconv.Atoi(high)
		if errLow == nil && errHigh == nil {
			return rule{min: least, max: most}
		}
	}
	if strings.Contains(tag, "|") {
		return rule{choices: strings.Split(tag, "|")}
	}
	return rule{} // TestEveryKeyIsDescribed finds such a tag
}

// maxRuleText is the largest size of a text in a CEL rule, such as a message, in bytes. It does not apply to
// expressions.
const maxRuleText = 1024

// Patterns that several of the named rules use.
const (
	listPattern = `^\s*([0-9]+(-[0-9]+)?(\s*,\s*[0-9]+(-[0-9]+)?)*)?\s*$` // a kernel list of CPUs or NUMA nodes
	typePattern = `^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`                     // the name of a balloon type or of a memory policy class
)

// namedRules returns the rules to which the tag "check" of a field refers by name.
func namedRules() map[string]rule {
	_, hooks := fieldsOf(reflect.TypeFor[hook.Options]()) // the key of a hook is its name
	all := map[string]rule{
		"CPU list":            {pattern: listPattern, description: `CPU list, e.g. "0-3,8"`, check: parsedBy(topology.ParseList)},
		"node list":           {pattern: listPattern, description: `a list of NUMA nodes, e.g. "0-1"`, check: parsedBy(topology.ParseList)},
		"CPUs":                {min: 1, max: topology.MaxCPUs},
		"CPUs or 0":           {min: 0, max: topology.MaxCPUs},
		"path":                {pattern: "^/", description: "absolute path", check: checkAbsolutePath},
		"path or empty":       orEmpty(rule{pattern: "^(/.*)?$", description: "absolute path", check: checkAbsolutePath}),
		"socket":              {pattern: "^/", description: socketPathDescription, check: checkSocketPath, maxBytes: maxSocketPath},
		"socket or empty":     orEmpty(rule{pattern: "^(/.*)?$", description: socketPathDescription, check: checkSocketPath, maxBytes: maxSocketPath}),
		"address or empty":    orEmpty(rule{pattern: "^(.*:[0-9]+)?$", description: `IP address and port, e.g. "127.0.0.1:9464"; ":9464" is every address`, check: checkAddress}),
		"version":             {choices: []string{APIVersion}},
		"kind":                {choices: []string{Kind}},
		"dialects":            {choices: intent.Dialects()},
		"hooks":               {choices: hooks},
		"fields":              {choices: fieldNames()},
		"kinds":               {choices: intent.KindNames(), required: true},
		"namespaces":          {pattern: namespacePattern, description: "names or patterns of namespaces", check: checkNamespacePattern, required: true},
		"label selector":      {pattern: `^[^\x00]*$`, description: `a label selector, e.g. "team=db,tier!=test", or empty`, check: checkLabelSelector, maxBytes: 1024},
		"decision":            {choices: intent.Decisions()},
		"kubelet URL":         {pattern: `^$|^https://[^/@?#]+/?$|^http://(127\.0\.0\.1|\[::1\]|localhost):[0-9]+/?$`, description: `empty, "https://HOST:PORT", or "http://127.0.0.1:PORT" for a read-only port of this machine`},
		"host name":           {pattern: `^[A-Za-z0-9.:_-]{0,253}$`, description: "a host name or address, or empty"},
		"node name":           {pattern: `^[a-z0-9.-]{0,253}$`, description: "a node's name, or empty"},
		"namespace or empty":  {pattern: `^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$`, description: "a namespace's name, or empty"},
		"endpoint":            {pattern: `^unix:///[^\x00]{1,98}$`, description: `a socket with its scheme, e.g. "unix:///run/containerd/containerd.sock"`},
		"endpoint or empty":   {pattern: `^(unix:///[^\x00]{1,98})?$`, description: `a socket with its scheme, or empty`},
		"plugin name":         {pattern: `^[A-Za-z0-9_.+-]+$`, description: "letters, digits and _ . + -"},
		"plugin names":        {pattern: `^[A-Za-z0-9_.+-]+$`, description: "letters, digits and _ . + -"},
		"annotation or empty": {pattern: `^([A-Za-z0-9][A-Za-z0-9./_-]{0,316})?$`, description: "the key of an annotation, or empty"},
		"plugin index":        {pattern: `^[0-9]{2}$`, description: `two digits, e.g. "90"`},
		"ratio":               {pattern: `^(100(\.00?)?|[1-9][0-9]?(\.[0-9]{1,2})?|0\.(0[1-9]|[1-9][0-9]?))$`, description: `a number above 0 and at most 100, with at most two decimal places, in quotes, e.g. "1.20"`},
		"ways":                {pattern: `^([0-9]|[1-9][0-9])-([1-9][0-9]?|100)$`, description: `two percentages, e.g. "0-30"`},
		"class":               {pattern: `^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$`, description: `the name of a class: at most 64 letters, digits, "-", "_" and ".", the first a letter or digit; or empty`},
		"rule name":           {pattern: `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`, description: `at most 63 lower-case letters, digits and "-", the first and last a letter or digit`},
		"expression":          {pattern: `[^\s]`, description: fmt.Sprintf("an expression in CEL, at most %d bytes", rules.MaxExpression), maxBytes: rules.MaxExpression},
		"expression or empty": {pattern: `^[^\x00]*$`, description: fmt.Sprintf("an expression in CEL, at most %d bytes, or empty", rules.MaxExpression), maxBytes: rules.MaxExpression},
		"resource names":      {pattern: `^[a-z0-9]([A-Za-z0-9./_-]{0,251}[A-Za-z0-9])?$`, description: `names of resources, e.g. "cpu" or "example.com/nic"`},
		"resource mappings":   {pattern: `^[a-z0-9]([A-Za-z0-9./_-]{0,251}[A-Za-z0-9])?=[a-z0-9]([A-Za-z0-9./_-]{0,251}[A-Za-z0-9])?$`, description: `two names of resources, e.g. "example.com/millicpu=cpu"`},
		"rule fields":         {choices: rules.FieldNames()},
		"mount options":       {choices: rules.MountOptions()},
		"texts":               {pattern: `^[^\x00]*$`, description: "any texts", maxBytes: maxRuleText},
		"text":                {pattern: `^[^\x00]*$`, description: "any text", maxBytes: maxRuleText},
		"message":             {pattern: `^[^\x00-\x1f]*$`, description: "a message of one line, or empty", maxBytes: maxRuleText},
		"pool or empty":       {pattern: `^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`, description: `the name of a pool: at most 63 letters, digits, "-", "_" and ".", the first and last a letter or digit; or empty`},
		"variables":           {pattern: `^[A-Za-z_][A-Za-z0-9_]{0,63}(=(count|list))?$`, description: `the name of a variable, alone or followed by "=count" or "=list"`},
		"process limits": {pattern: `^(as|core|cpu|data|fsize|locks|memlock|msgqueue|nice|nofile|nproc|rss|rtprio|rttime|sigpending|stack)=(0|[1-9][0-9]{0,18})$`,
			description: `a limit and the highest value that pods may request, e.g. "nofile=1048576"`},
		"device paths":             {pattern: `^/dev/[A-Za-z0-9._:+-]+(/[A-Za-z0-9._:+-]+)*$`, description: `the path of a device of the host, e.g. "/dev/fuse"`, check: checkAbsolutePath},
		"RDT classes":              {pattern: `^([A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\*?|\*)$`, description: "names of resctrl groups, or prefixes of names followed by *"},
		"memory nodes of a policy": {pattern: `^([0-9,-]*|all|allowed-mems|cpu-packages|cpu-nodes|max-dist:[0-9]{1,3})$`, description: "a list of memory nodes, all, allowed-mems, cpu-packages, cpu-nodes, or max-dist:N"},
		"memory policy class":      {pattern: typePattern, description: `the name of a class: at most 63 letters, digits, "-", "_" and ".", the first a letter or digit`},
		"memory classes":           {pattern: `^[A-Za-z0-9][A-Za-z0-9._-]{0,62}=([0-9]|[1-9][0-9])$`, description: `a class and the part of the memory limit that may be swapped, 0 to 99 percent, e.g. "bronze=20"`},
		"directories":              {pattern: "^/", description: "absolute paths of directories", check: checkAbsolutePath},
		"CDI devices":              {pattern: `^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+=([A-Za-z0-9._:-]*\*|[A-Za-z0-9._:-]+)$`, description: `a CDI device, e.g. "vendor.com/net=nic0", or a prefix of names of one kind followed by *`},
		"interfaces":               {pattern: `^[A-Za-z0-9_.][A-Za-z0-9_.-]{0,14}\*?$`, description: `a network interface's name, e.g. "eth1", or a prefix followed by *`},
		"kernel parameters":        {pattern: `^[A-Za-z0-9][A-Za-z0-9._-]{0,254}\*?$`, description: `a kernel parameter's name, e.g. "net.core.somaxconn", or a prefix of names followed by *`},
		"CDI kinds":                {pattern: `^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`, description: `a kind of CDI devices, e.g. "vendor.com/gpu"`},
	}
	maps.Copy(all, placementRules())
	return all
}

// placementRules are the rules that only keys below placement use.
func placementRules() map[string]rule {
	return map[string]rule{
		"memory types":     {choices: slices.Sorted(maps.Keys(intent.MemoryKinds()))},
		"scheduling flags": {choices: []string{"reset-on-fork", "reclaim", "dl-overrun", "keep-policy", "keep-params"}},
		"frequency":        {pattern: `^([0-9]+(\.[0-9]+)?(kHz|MHz|GHz)?|min|base|turbo)?$`, description: `a frequency in kHz or with a unit, in quotes, e.g. "2.9GHz", or min, base, turbo, or empty`, check: parsedBy(lifecycle.ParseFrequency)},
		"kernel word":      {pattern: `^([A-Za-z0-9_-]{1,32})?$`, description: "a name that the kernel knows: letters, digits, - and _, or empty"},
		"kernel words":     {pattern: `^[A-Za-z0-9_-]{1,32}$`, description: "names that the kernel knows: letters, digits, - and _"},
		"near devices": {
			pattern:     `^(/sys/devices/[^\x00]+|podresourceapi:[^/\\\x00]+/[^/\\\x00]+)$`,
			description: `paths below /sys/devices, e.g. "/sys/devices/system/node/node0", or podresourceapi: and a resource or a pattern, e.g. "podresourceapi:example.com/*"`,
		},
		"balloon type":       {pattern: typePattern, description: `the name of a balloon type: at most 63 letters, digits, "-", "_" and ".", the first a letter or digit`},
		"balloon namespaces": {pattern: namespacePattern, description: "names or patterns of namespaces", check: checkNamespacePattern},
	}
}

// fieldNames returns the names of all fields that the agent can set, such as cpu.shares.
func fieldNames() []string {
	var names []string
	for _, f := range lifecycle.Fields() {
		names = append(names, f.Name)
	}
	return names
}
