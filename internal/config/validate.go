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
	"github.com/trimtab/trimtab/internal/placement/class"
	"github.com/trimtab/trimtab/internal/rules"
)

// maxSocketPath is the largest length of a path in the kernel's sockaddr_un, without the final NUL.
const maxSocketPath = 107

// socketPathDescription describes a valid socket path for users.
var socketPathDescription = fmt.Sprintf("absolute path of at most %d bytes", maxSocketPath)

// allowedValues describes the valid values for users. It is for rules without choices.
func (r rule) allowedValues() string {
	if r.max != 0 {
		return fmt.Sprintf("%d to %d", r.min, r.max)
	}
	return r.description
}

// orEmpty returns the rule r, changed to accept also the empty text.
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

// valueProblems are errors in the values of a configuration. They have no files and lines.
type valueProblems []Problem

// add adds an error about the key at path.
func (f *valueProblems) add(path, format string, args ...any) {
	*f = append(*f, Problem{Path: path, What: fmt.Sprintf(format, args...)})
}

// Validate returns all errors in the values of a configuration, with the paths of the keys. Merge adds files and lines.
func Validate(c Config) []Problem {
	var found valueProblems
	byPath := keyRules()
	visitFields(reflect.ValueOf(c), "", func(path string, _ reflect.StructField, _ reflect.Type, v reflect.Value) {
		r, ok := byPath[withoutIndexes(path)]
		if !ok {
			return
		}
		report := func(path, what string) {
			if what != "" {
				found.add(path, "%s", what)
			}
		}
		switch v.Kind() {
		case reflect.Int:
			report(path, r.checkInteger(v.Int()))
		case reflect.String:
			report(path, r.checkText(v.String()))
		case reflect.Slice:
			r.checkList(path, v, report)
		}
	})
	for i, a := range c.Authorization {
		at := fmt.Sprintf("authorization[%d]", i)
		found.checkAuthorizationRule(a, at)
		if a.NamespaceSelector != "" && !c.Cluster.Enabled {
			found.add(at+".namespaceSelector", "needs the API server for the labels of namespaces: set cluster.enabled")
		}
	}
	if c.NRIHost.Enabled && c.Attach != "cri" {
		found.add("nriHost.enabled", "needs the CRI proxy, because the proxy calls the NRI plugins: set attach: cri")
	}
	if socket := c.PodResources.Socket; socket != "" && filepath.Clean(socket) == filepath.Clean(c.PodSpec.Kubelet.PodResourcesSocket) {
		found.add("podResources.socket", "is the kubelet's own socket (podspec.kubelet.podResourcesSocket): set another path, because the kubelet serves this one")
	}
	if c.Authority == "dra" && c.Attach == "hooks" {
		found.add("authority", "dra needs an attachment that gets the CDI devices of containers: set attach: nri, cri or bypass")
	}
	if c.TopologyManager.Policy != "none" && (c.Placement.Policy != "pools" || c.Authority != "agent") {
		found.add("topologyManager.policy", "needs an agent that chooses CPUs: set placement.policy: pools and authority: agent")
	}
	found.checkRules(c)
	found.checkPlacement(&c.Placement)
	found.checkGrants(c)
	found.checkVariables(c.Hooks.CPUEnv.Variables)
	found.checkMounts(c.Hooks.Mounts)
	found.checkKubelet(c.PodSpec.Kubelet)
	return found
}

// checkRules compiles the CEL rules and adds the errors of the compiler. It does nothing if another check has already
// found an invalid key of a rule.
func (f *valueProblems) checkRules(c Config) {
	if slices.ContainsFunc(*f, func(p Problem) bool { return strings.HasPrefix(p.Path, "rules[") }) {
		return
	}
	set, wrong := rules.Compile(c.Rules)
	for _, p := range wrong {
		f.add("rules"+p.Path, "%s", p.Sentence())
	}
	if wrong == nil && set.ReadsNamespaces() && !c.Cluster.Enabled {
		f.add("rules", "pod.namespaceLabels needs the API server for the labels of namespaces: set cluster.enabled")
	}
}

// checkGrants adds an error for each balloon type that prefers CPUs near granted devices, if no socket is set from
// which the agent reads the grants.
func (f *valueProblems) checkGrants(c Config) {
	if c.PodSpec.Kubelet.PodResourcesSocket != "" {
		return
	}
	for _, at := range balloons.GrantedDeviceKeys(c.Placement.Balloons) {
		f.add("placement.balloons."+at, "needs podspec.kubelet.podResourcesSocket, which is empty")
	}
}

// checkPlacement adds an error for each key of a placement policy that is valid alone but not together with others.
func (f *valueProblems) checkPlacement(p *Placement) {
	for _, w := range balloons.Check(p.Balloons) {
		f.add("placement.balloons."+w.Path, "%s", w.Text)
	}
	known, wrong := class.SchedulingClasses(p.TopologyAware.SchedulingClasses).Check()
	for i, of := range p.TopologyAware.NamespaceSchedulingClasses {
		wrong = append(wrong, class.CheckSchedulingClass(known, fmt.Sprintf("namespaceSchedulingClasses[%d].schedulingClass", i), of.SchedulingClass)...)
	}
	for i, of := range p.TopologyAware.PodQoSSchedulingClasses {
		wrong = append(wrong, class.CheckSchedulingClass(known, fmt.Sprintf("podQoSSchedulingClasses[%d].schedulingClass", i), of.SchedulingClass)...)
	}
	for _, w := range wrong {
		f.add("placement.topologyAware."+w.Path, "%s", w.Text)
	}
}

// checkVariables adds an error for each entry of hooks.cpuEnv.variables that has the variable name of an earlier entry
// but another text.
func (f *valueProblems) checkVariables(variables []string) {
	seen := map[string]string{}
	for i, text := range variables {
		name, _, _ := strings.Cut(text, "=")
		if first, twice := seen[name]; twice && first != text {
			f.add(fmt.Sprintf("hooks.cpuEnv.variables[%d]", i), "is %s, but the earlier entry %s has the same variable name", quoteShort(text), quoteShort(first))
		}
		seen[name] = text
	}
}

// checkKubelet adds an error for each key of podspec.kubelet that is valid alone but not together with the others.
func (f *valueProblems) checkKubelet(k KubeletClient) {
	if (k.CertFile == "") != (k.KeyFile == "") {
		f.add("podspec.kubelet.certFile", "needs podspec.kubelet.keyFile, and keyFile needs certFile: set both or neither")
	}
	if strings.HasPrefix(k.URL, "https://") {
		return
	}
	for _, needs := range []struct {
		key string
		set bool
	}{
		{"tokenFile", k.TokenFile != ""}, {"caFile", k.CAFile != ""}, {"serverName", k.ServerName != ""},
		{"certFile", k.CertFile != ""}, {"insecureSkipVerify", k.SkipVerify},
	} {
		if needs.set {
			f.add("podspec.kubelet."+needs.key, "has no effect without an https:// address in podspec.kubelet.url")
		}
	}
}

// checkAuthorizationRule adds an error for each key of an authorization rule that is valid alone but not together with
// the others.
func (f *valueProblems) checkAuthorizationRule(a Rule, path string) {
	capped := a.Decision == string(intent.Cap)
	for i, k := range a.Kinds {
		if capped && !intent.CanCap(intent.Kind(k)) {
			f.add(fmt.Sprintf("%s.kinds[%d]", path, i), "%s cannot be capped, only %s can; set allow or refuse", quoteShort(k), strings.Join(intent.CappableKinds(), ", "))
		}
	}
	if a.MostCPUs != 0 && (!capped || !slices.Contains(a.Kinds, string(intent.AssignedCPUs))) {
		f.add(path+".mostCPUs", "has no effect: this rule does not cap %[1]s; set decision: cap and add %[1]s to kinds, or remove mostCPUs", intent.AssignedCPUs)
	}
}

// checkInteger returns what is wrong with the integer i, or "".
func (r rule) checkInteger(i int64) string {
	if r.max != 0 && (i < int64(r.min) || i > int64(r.max)) {
		return fmt.Sprintf("is %d, want %s", i, r.allowedValues())
	}
	return ""
}

// checkList calls report for every error in the list v of texts.
func (r rule) checkList(path string, v reflect.Value, report func(path, what string)) {
	if r.required && v.Len() == 0 {
		report(path, "is missing, want a list with at least one element")
	}
	seen := map[string]bool{}
	for i := range v.Len() {
		at, s := fmt.Sprintf("%s[%d]", path, i), v.Index(i).String()
		if seen[s] {
			report(at, quoteShort(s)+" is listed twice: remove one")
			continue
		}
		seen[s] = true
		report(at, r.checkText(s))
	}
}

// checkText returns what is wrong with s, or "".
func (r rule) checkText(s string) string {
	switch {
	case r.choices != nil:
		return r.checkChoice(s)
	case r.check != nil:
		if wrong := r.check(s); wrong != "" {
			return wrong
		}
	case r.matches != nil && !r.matches(s):
		return fmt.Sprintf("is %s, want %s", quoteShort(s), r.description)
	}
	if r.maxBytes != 0 && len(s) > r.maxBytes {
		return fmt.Sprintf("is %d bytes long, want at most %d", len(s), r.maxBytes)
	}
	return ""
}

// parsedBy returns a function for the field check of a rule: it calls parse and returns the text of the error.
func parsedBy[T any](parse func(string) (T, error)) func(string) string {
	return func(s string) string {
		if _, err := parse(s); err != nil {
			return err.Error()
		}
		return ""
	}
}

// isNamespacePattern reports whether a text matches namespacePattern.
var isNamespacePattern = patternMatcher(namespacePattern)

// namespacePattern matches texts that have only characters of namespace names and patterns.
const namespacePattern = `^[a-z0-9*?\[\]^-]{1,63}$`

// checkNamespacePattern returns what is wrong with a name or pattern of namespaces, or "".
func checkNamespacePattern(s string) string {
	switch {
	case !isNamespacePattern(s):
		return fmt.Sprintf("is %s, want names or patterns of namespaces", quoteShort(s))
	case !intent.IsNamespacePattern(s):
		return fmt.Sprintf("is %s, which is not a pattern: it has a [ without ], or wrong characters between [ and ]", quoteShort(s))
	}
	return ""
}

// checkLabelSelector returns what is wrong with a label selector, or "".
func checkLabelSelector(s string) string {
	if _, err := labels.Parse(s); err != nil {
		return fmt.Sprintf("is %s, which is not a label selector: %v", quoteShort(s), err)
	}
	return ""
}

// checkAddress returns what is wrong with an IP address and port, or "". It refuses host names, because a host name may
// not resolve yet when the node starts.
func checkAddress(s string) string {
	host, port, err := net.SplitHostPort(s)
	if err == nil && host != "" {
		_, err = netip.ParseAddr(host)
	}
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || n == 0 {
		return fmt.Sprintf("is %s, want an IP address and a port, e.g. \"127.0.0.1:9464\"", quoteShort(s))
	}
	return ""
}

// koordinatorClasses maps the QoS classes of Koordinator to the classes of Trimtab.
var koordinatorClasses = map[string]string{
	"LSE": "dedicated", "LSR": "dedicated", "LS": "shared", "BE": "reclaimed", "SYSTEM": "system",
}

// checkChoice returns what is wrong with s, or "", for a rule with choices.
func (r rule) checkChoice(s string) string {
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
		return fmt.Sprintf("is %s, want %s; Koordinator's class %s is %q in Trimtab", quoteShort(s), want, s, same)
	}
	words := slices.DeleteFunc(slices.Clone(r.choices), func(c string) bool { return c == "" })
	if near, d := nearest.Word(s, words); len(words) > 1 && d <= 2 {
		return fmt.Sprintf("is %s, want %s; the nearest valid value is %q", quoteShort(s), want, near)
	}
	return fmt.Sprintf("is %s, want %s", quoteShort(s), want)
}

// checkAbsolutePath returns what is wrong with an absolute path, or "".
func checkAbsolutePath(s string) string {
	if !filepath.IsAbs(s) || strings.ContainsRune(s, 0) {
		return fmt.Sprintf("is %s, want an absolute path", quoteShort(s))
	}
	return ""
}

// checkSocketPath returns what is wrong with the path of a socket, or "".
func checkSocketPath(s string) string {
	if wrong := checkAbsolutePath(s); wrong != "" || len(s) <= maxSocketPath {
		return wrong
	}
	return fmt.Sprintf("is %d bytes long, but the path of a socket may have at most %d bytes", len(s), maxSocketPath)
}
