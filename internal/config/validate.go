package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/nearest"
	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/rules"
	"github.com/trimtab/trimtab/internal/topology"
)

// maxSocketPath is the longest path in the kernel's sockaddr_un, without its NUL.
const maxSocketPath = 107

var socketPath = fmt.Sprintf("absolute path of at most %d bytes", maxSocketPath)

// allowed describes the valid values in messages, for rules without choices.
func (r rule) allowed() string {
	if r.max != 0 {
		return fmt.Sprintf("%d to %d", r.min, r.max)
	}
	return r.description
}

// orEmpty returns a rule that also accepts the empty text.
func orEmpty(r rule) rule {
	wrong := r.check
	r.description += ", or empty"
	r.check = func(s string) string {
		if s == "" {
			return ""
		}
		return wrong(s)
	}
	return r
}

// Validate returns all errors in the values of a configuration, with field paths. Only Parse knows files and lines.
func Validate(c Config) []Problem {
	var problems []Problem
	byPath := keyRules()
	visitFields(reflect.ValueOf(c), "", func(path string, _ reflect.StructField, _ reflect.Type, v reflect.Value) {
		r, ok := byPath[withoutIndexes(path)]
		if !ok {
			return
		}
		report := func(path, what string) {
			if what != "" {
				problems = append(problems, Problem{Path: path, What: what})
			}
		}
		switch v.Kind() {
		case reflect.Int:
			report(path, r.integer(v.Int()))
		case reflect.String:
			report(path, r.text(v.String()))
		case reflect.Slice:
			r.list(path, v, report)
		}
	})
	for i, a := range c.Authorization {
		problems = append(problems, a.check(fmt.Sprintf("authorization[%d]", i))...)
		if a.NamespaceSelector != "" && !c.Cluster.Enabled {
			problems = append(problems, Problem{
				Path: fmt.Sprintf("authorization[%d].namespaceSelector", i), What: "needs the API server for the labels of namespaces: set cluster.enabled",
			})
		}
	}
	if c.NRIHost.Enabled && c.Attach != "cri" {
		problems = append(problems, Problem{Path: "nriHost.enabled", What: "needs the CRI proxy, because the agent serves NRI plugins in front of it: set attach: cri"})
	}
	problems = append(problems, c.PodResources.check(c.PodSpec.Kubelet)...)
	if c.TopologyManager.Policy != "none" && (c.Placement.Policy != "pools" || c.Authority != "agent") {
		problems = append(problems, Problem{Path: "topologyManager.policy", What: "needs an agent that chooses CPUs: set placement.policy: pools and authority: agent"})
	}
	problems = append(problems, checkRules(c, problems)...)
	for _, w := range balloons.Check(c.Placement.Balloons) {
		problems = append(problems, Problem{Path: "placement.balloons." + w.Path, What: w.What})
	}
	problems = append(problems, checkVariables(c.Hooks.CPUEnv.Variables)...)
	problems = append(problems, checkMounts(c.Hooks.Mounts)...)
	return append(problems, c.PodSpec.Kubelet.check()...)
}

// checkRules returns the errors in rules whose keys are each valid. known are the problems found so far.
func checkRules(c Config, known []Problem) []Problem {
	if slices.ContainsFunc(known, func(p Problem) bool { return strings.HasPrefix(p.Path, "rules[") }) {
		return nil
	}
	set, wrong := rules.Compile(c.Rules)
	var problems []Problem
	for _, p := range wrong {
		problems = append(problems, Problem{Path: "rules" + p.Path, What: p.Sentence()})
	}
	if wrong == nil && set.ReadsNamespaces() && !c.Cluster.Enabled {
		problems = append(problems, Problem{Path: "rules", What: "pod.namespaceLabels needs the API server for the labels of namespaces: set cluster.enabled"})
	}
	return problems
}

// checkVariables returns the errors in variables that are each valid.
func checkVariables(variables []string) []Problem {
	var problems []Problem
	seen := map[string]string{}
	for i, text := range variables {
		name, _, _ := strings.Cut(text, "=")
		if first, twice := seen[name]; twice && first != text {
			problems = append(problems, Problem{
				Path: fmt.Sprintf("hooks.cpuEnv.variables[%d]", i), What: fmt.Sprintf("is %s, but %s has this name already", quoteShort(text), quoteShort(first)),
			})
		}
		seen[name] = text
	}
	return problems
}

// check returns the errors in combinations of keys that are each valid.
func (k KubeletClient) check() []Problem {
	var problems []Problem
	report := func(key, what string) {
		problems = append(problems, Problem{Path: "podspec.kubelet." + key, What: what})
	}
	https := strings.HasPrefix(k.URL, "https://")
	if (k.CertFile == "") != (k.KeyFile == "") {
		report("certFile", "needs keyFile: set both or neither")
	}
	for _, needs := range []struct {
		key string
		set bool
	}{
		{"tokenFile", k.TokenFile != ""}, {"caFile", k.CAFile != ""}, {"serverName", k.ServerName != ""},
		{"certFile", k.CertFile != ""}, {"insecureSkipVerify", k.SkipVerify},
	} {
		if needs.set && !https {
			report(needs.key, "has no effect without an https:// address in podspec.kubelet.url")
		}
	}
	return problems
}

// check returns the errors in combinations of keys of a rule that are each valid.
func (a Rule) check(path string) []Problem {
	var problems []Problem
	cpus := slices.Contains(a.Kinds, string(intent.AssignedCPUs))
	for i, k := range a.Kinds {
		if a.Decision == string(intent.Cap) && !intent.HasCap(intent.Kind(k)) {
			problems = append(problems, Problem{
				Path: fmt.Sprintf("%s.kinds[%d]", path, i),
				What: fmt.Sprintf("%s cannot be capped, only %s can; set allow or refuse", quoteShort(k), strings.Join(intent.Capped(), ", ")),
			})
		}
	}
	if a.MostCPUs != 0 && (a.Decision != string(intent.Cap) || !cpus) {
		problems = append(problems, Problem{
			Path: path + ".mostCPUs", What: fmt.Sprintf("limits %s that are capped; this rule caps none", intent.AssignedCPUs),
		})
	}
	return problems
}

func (r rule) integer(i int64) string {
	if r.max != 0 && (i < int64(r.min) || i > int64(r.max)) {
		return fmt.Sprintf("is %d, want %s", i, r.allowed())
	}
	return ""
}

func (r rule) list(path string, v reflect.Value, report func(path, what string)) {
	if r.required && v.Len() == 0 {
		report(path, "is missing, want a list of at least one")
	}
	seen := map[string]bool{}
	for i := range v.Len() {
		at, s := fmt.Sprintf("%s[%d]", path, i), v.Index(i).String()
		if seen[s] {
			report(at, quoteShort(s)+" is given twice")
			continue
		}
		seen[s] = true
		report(at, r.text(s))
	}
}

// text returns what is wrong with s, or "".
func (r rule) text(s string) string {
	switch {
	case r.choices != nil:
		return r.choice(s)
	case r.check != nil:
		return r.check(s)
	case r.matches != nil && !r.matches(s):
		return fmt.Sprintf("is %s, want %s", quoteShort(s), r.description)
	}
	return ""
}

func cpuList(s string) string {
	if _, err := topology.ParseList(s); err != nil {
		return err.Error()
	}
	return ""
}

var isNamespacePattern = matching(namespacePattern)

const namespacePattern = `^[a-z0-9*?\[\]^-]{1,63}$`

func namespaces(s string) string {
	switch {
	case !isNamespacePattern(s):
		return fmt.Sprintf("is %s, want names or patterns of namespaces", quoteShort(s))
	case !intent.ValidPattern(s):
		return fmt.Sprintf("is %s: an empty pattern, or a [ without ]", quoteShort(s))
	}
	return ""
}

// selector returns what is wrong with a label selector.
func selector(s string) string {
	if _, err := labels.Parse(s); err != nil {
		return fmt.Sprintf("is %s, which is not a label selector: %v", quoteShort(s), err)
	}
	return ""
}

// address accepts no host names: they may not resolve yet when the node starts.
func address(s string) string {
	host, port, err := net.SplitHostPort(s)
	if err == nil && host != "" {
		_, err = netip.ParseAddr(host)
	}
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || n == 0 {
		return fmt.Sprintf("is %s, want an IP address and a port, e.g. \"127.0.0.1:9464\"", quoteShort(s))
	}
	return ""
}

// koordinatorClasses are the classes by the names that Koordinator has for them.
var koordinatorClasses = map[string]string{
	"LSE": "dedicated", "LSR": "dedicated", "LS": "shared", "BE": "reclaimed", "SYSTEM": "system",
}

func (r rule) choice(s string) string {
	if slices.Contains(r.choices, s) {
		return ""
	}
	quoted := make([]string, len(r.choices))
	for i, c := range r.choices {
		quoted[i] = quoteShort(c)
	}
	want := strings.Join(quoted, " or ")
	if s == "" {
		return "is missing, want " + want
	}
	if same, ok := koordinatorClasses[s]; ok && slices.Contains(r.choices, same) {
		return fmt.Sprintf("is %s, want %s; Koordinator's class %s is %q here", quoteShort(s), want, s, same)
	}
	words := slices.DeleteFunc(slices.Clone(r.choices), func(c string) bool { return c == "" })
	if near, d := nearest.To(s, words); len(words) > 1 && d <= 2 {
		return fmt.Sprintf("is %s, want %s; nearest %q", quoteShort(s), want, near)
	}
	return fmt.Sprintf("is %s, want %s", quoteShort(s), want)
}

func absolute(s string) string {
	if !filepath.IsAbs(s) || strings.ContainsRune(s, 0) {
		return fmt.Sprintf("is %s, want an absolute path", quoteShort(s))
	}
	return ""
}

func socket(s string) string {
	if wrong := absolute(s); wrong != "" || len(s) <= maxSocketPath {
		return wrong
	}
	return fmt.Sprintf("is %d bytes long; a socket path has at most %d", len(s), maxSocketPath)
}

// check returns the errors of a socket path that is valid by itself.
func (p PodResources) check(k KubeletClient) []Problem {
	if p.Socket == "" || filepath.Clean(p.Socket) != filepath.Clean(k.PodResourcesSocket) {
		return nil
	}
	return []Problem{{Path: "podResources.socket", What: "is the kubelet's own socket (podspec.kubelet.podResourcesSocket): the agent serves beside it, on another path"}}
}
