package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// maxSocketPath is what fits into the kernel's sockaddr_un next to its NUL.
const maxSocketPath = 107

// rule is what a value must be beyond having the right type. Validation,
// schema and docs all read it.
type rule struct {
	choices  []string // one of these; of a list: each element, once
	pattern  string   // a regular expression, and
	means    string   // what it means
	cpus     bool     // a kernel CPU list
	absolute bool     // an absolute path
	socket   bool     // an absolute path that fits a socket address
	address  bool     // an IP address, or nothing, and a port
	optional bool     // a path or address that may be empty
	required bool     // a list with an element at least
	glob     bool     // a pattern of namespaces
	min, max int      // of an integer; no bound where both are 0
}

// rules returns the rule of every key that has one, by path.
func rules() map[string]rule {
	absolute := rule{absolute: true}
	all := map[string]rule{
		"apiVersion":                         {choices: []string{APIVersion}},
		"kind":                               {choices: []string{Kind}},
		"dialects":                           {choices: intent.Dialects()},
		"failurePolicy.agent":                {choices: []string{"ignore", "fail"}},
		"failurePolicy.hooks":                {choices: hookNames()},
		"authorisation[].kinds":              {choices: intent.KindNames(), required: true},
		"authorisation[].namespaces":         {pattern: `^[a-z0-9*?\[\]^-]{1,63}$`, means: "names or patterns of namespaces", glob: true, required: true},
		"authorisation[].decision":           {choices: intent.Decisions()},
		"authorisation[].mostCPUs":           {min: 0, max: topology.MaxCPUs},
		"podspec.waitMilliseconds":           {min: 0, max: 1000},
		"podspec.pollSeconds":                {min: 1, max: 3600},
		"podspec.kubelet.podsSocket":         {socket: true, optional: true},
		"podspec.kubelet.podResourcesSocket": {socket: true, optional: true},
		"podspec.kubelet.url":                {pattern: `^$|^https://[^/@?#]+/?$|^http://(127\.0\.0\.1|\[::1\]|localhost):[0-9]+/?$`, means: `empty, "https://HOST:PORT", or "http://127.0.0.1:PORT" for a read-only port of this machine`},
		"podspec.kubelet.tokenFile":          {absolute: true, optional: true},
		"podspec.kubelet.caFile":             {absolute: true, optional: true},
		"podspec.kubelet.serverName":         {pattern: `^[A-Za-z0-9.:_-]{0,253}$`, means: "a host name or address, or empty"},
		"podspec.kubelet.certFile":           {absolute: true, optional: true},
		"podspec.kubelet.keyFile":            {absolute: true, optional: true},
		"podspec.kubelet.nodeName":           {pattern: `^[a-z0-9.-]{0,253}$`, means: "a node's name, or empty"},
		"attach":                             {choices: []string{"nri", "cri", "bypass", "auto", "hooks"}},
		"cri.endpoint":                       {pattern: `^unix:///[^\x00]{1,98}$`, means: `a socket with its scheme, e.g. "unix:///run/containerd/containerd.sock"`},
		"cri.imageEndpoint":                  {pattern: `^(unix:///[^\x00]{1,98})?$`, means: `a socket with its scheme, or empty`},
		"cri.socket":                         {socket: true},
		"bypass.cgroupRoot":                  {absolute: true, optional: true},
		"bypass.resyncSeconds":               {min: 5, max: 3600},
		"hookServers.directory":              {absolute: true, optional: true},
		"hookServers.socket":                 {socket: true},
		"hookServers.register":               {absolute: true, optional: true},
		"hookServers.timeoutMilliseconds":    {min: 1, max: 1500},
		"nri.socket":                         {socket: true},
		"nri.name":                           {pattern: `^[A-Za-z0-9_.+-]+$`, means: "letters, digits and _ . + -"},
		"nri.index":                          {pattern: `^[0-9]{2}$`, means: `two digits, e.g. "90"`},
		"nri.updateIntervalMilliseconds":     {min: 0, max: 60000},
		"nri.cede":                           {choices: fieldNames()},
		"keeper.giveUpAfter":                 {min: 0, max: 10000},
		"cgroup.root":                        absolute,
		"cgroup.version":                     {choices: []string{"auto", "v1", "v2"}},
		"paths.sys":                          absolute,
		"paths.dev":                          absolute,
		"paths.resctrl":                      absolute,
		"paths.statusSocket":                 {socket: true, optional: true},
		"paths.key":                          absolute,
		"paths.state":                        absolute,
		"http.address":                       {address: true, optional: true},
		"log.level":                          {choices: []string{"debug", "info", "warn", "error"}},
		"log.format":                         {choices: []string{"text", "json"}},
	}
	maps.Copy(all, placementRules())
	maps.Copy(all, hookRules())
	return all
}

// placementRules are those of who gives CPUs, and which.
func placementRules() map[string]rule {
	cpus := rule{cpus: true}
	return map[string]rule{
		"pools.reserved":           cpus,
		"pools.shared":             cpus,
		"pools.reclaimed":          cpus,
		"pools.system":             cpus,
		"authority":                {choices: []string{"agent", "kubelet"}},
		"placement.policy":         {choices: []string{"none", "pools"}},
		"placement.reclaim":        {choices: []string{"together", "leftover", "overlap"}},
		"placement.reclaimedCPUs":  {min: 1, max: topology.MaxCPUs},
		"placement.wholeCPUs":      {choices: []string{"never", "guaranteed", "any"}},
		"placement.preferCoreType": {choices: []string{"any", "performance", "efficient"}},
		"placement.isolatedCPUs":   {choices: []string{"single", "prefer", "avoid"}},
	}
}

// hookRules are those of the keys below hooks.
func hookRules() map[string]rule {
	identity := rule{min: -1, max: 2}
	ways := rule{pattern: `^([0-9]|[1-9][0-9])-([1-9][0-9]?|100)$`, means: `two percentages, e.g. "0-30"`}
	percent, share := rule{min: 1, max: 100}, rule{min: 0, max: 100}
	weight := rule{min: 0, max: 10000}
	class := rule{pattern: `^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$`, means: "a class's name: letters, digits, and - _ . inside, or empty"}
	return map[string]rule{
		"hooks.cpuset.unlabelled":      {choices: []string{"leave", "shared"}},
		"hooks.normalization.ratio":    {pattern: `^(100(\.00?)?|[1-9][0-9]?(\.[0-9]{1,2})?|0\.(0[1-9]|[1-9][0-9]?))$`, means: `a number above 0 and at most 100, with at most two decimal places, in quotes, e.g. "1.20"`},
		"hooks.groupIdentity.lsr":      identity,
		"hooks.groupIdentity.ls":       identity,
		"hooks.groupIdentity.be":       identity,
		"hooks.groupIdentity.fallback": {choices: []string{"none", "idle", "weight"}},
		"hooks.gpu.hamiLibrary":        {absolute: true, optional: true},
		"hooks.gpu.hamiLock":           {absolute: true},
		"hooks.gpu.devices":            {choices: []string{"env", "nodes", "cdi"}},
		"hooks.gpu.name":               {choices: []string{"index", "uuid"}},
		"hooks.blockIO.lsrWeight":      weight,
		"hooks.blockIO.lsWeight":       weight,
		"hooks.blockIO.beWeight":       weight,
		"hooks.blockIO.lsrClass":       class,
		"hooks.blockIO.lsClass":        class,
		"hooks.blockIO.beClass":        class,
		"hooks.preemption.yield":       {choices: []string{"none", "idle", "weight"}},
		"hooks.preemption.memoryHigh":  share,
		"hooks.preemption.memoryLow":   share,
		"hooks.preemption.memoryMin":   share,
		"hooks.rdt.lsrCache":           ways,
		"hooks.rdt.lsCache":            ways,
		"hooks.rdt.beCache":            ways,
		"hooks.rdt.lsrBandwidth":       percent,
		"hooks.rdt.lsBandwidth":        percent,
		"hooks.rdt.beBandwidth":        percent,
		"hooks.cpuEnv.variables":       {pattern: `^[A-Za-z_][A-Za-z0-9_]{0,63}(=(count|list))?$`, means: "a variable's name, with =count or =list"},
	}
}

// hookNames are the keys below hooks, which are the hooks' names.
func hookNames() []string {
	var names []string
	t := reflect.TypeFor[Hooks]()
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("json"))
	}
	return names
}

func fieldNames() []string {
	var names []string
	for _, f := range lifecycle.Fields() {
		names = append(names, f.Name)
	}
	return names
}

// allowed says for people what the rule asks for, where choices do not.
func (r rule) allowed() string {
	switch {
	case r.cpus:
		return `CPU list, e.g. "0-3,8"`
	case r.socket:
		return fmt.Sprintf("absolute path of at most %d bytes%s", maxSocketPath, r.orEmpty())
	case r.absolute:
		return "absolute path" + r.orEmpty()
	case r.address:
		return `IP address and port, e.g. "127.0.0.1:9464"; ":9464" is every address` + r.orEmpty()
	case r.max != 0:
		return fmt.Sprintf("%d to %d", r.min, r.max)
	}
	return r.means
}

func (r rule) orEmpty() string {
	if r.optional {
		return ", or empty"
	}
	return ""
}

// Validate returns everything wrong with the values of a configuration, with
// field paths; files and lines are known to Parse only.
func Validate(c Config) []Problem {
	var problems []Problem
	rules := rules()
	each(reflect.ValueOf(c), "", func(path string, _ reflect.StructField, _ reflect.Type, v reflect.Value) {
		r, ok := rules[anyElement(path)]
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
	for i, a := range c.Authorisation {
		problems = append(problems, a.check(fmt.Sprintf("authorisation[%d]", i))...)
	}
	problems = append(problems, c.Hooks.CPUEnv.check()...)
	return append(problems, c.PodSpec.Kubelet.check()...)
}

// check returns what is wrong with variables that are right each by itself.
func (h CPUEnvHook) check() []Problem {
	var problems []Problem
	seen := map[string]string{}
	for i, text := range h.Variables {
		name, _, _ := strings.Cut(text, "=")
		if first, twice := seen[name]; twice && first != text {
			problems = append(problems, Problem{
				Path: fmt.Sprintf("hooks.cpuEnv.variables[%d]", i), What: fmt.Sprintf("is %s, and %s is there already", quoteShort(text), quoteShort(first)),
			})
		}
		seen[name] = text
	}
	return problems
}

// check returns what is wrong with keys that are right each by itself.
func (k KubeletClient) check() []Problem {
	var problems []Problem
	report := func(key, what string) {
		problems = append(problems, Problem{Path: "podspec.kubelet." + key, What: what})
	}
	https := strings.HasPrefix(k.URL, "https://")
	if (k.CertFile == "") != (k.KeyFile == "") {
		report("certFile", "goes with keyFile: set both or neither")
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

// check returns what is wrong with keys of a rule that are right each by
// itself.
func (a Rule) check(path string) []Problem {
	var problems []Problem
	cpus := slices.Contains(a.Kinds, string(intent.AssignedCPUs))
	for i, k := range a.Kinds {
		if a.Decision == string(intent.Cap) && !intent.HasCap(intent.Kind(k)) {
			problems = append(problems, Problem{
				Path: fmt.Sprintf("%s.kinds[%d]", path, i),
				What: fmt.Sprintf("%s has no cap, only %s have; allow or refuse it", quoteShort(k), strings.Join(intent.Capped(), ", ")),
			})
		}
	}
	if a.MostCPUs != 0 && (a.Decision != string(intent.Cap) || !cpus) {
		problems = append(problems, Problem{
			Path: path + ".mostCPUs", What: fmt.Sprintf("bounds %s that are capped; this rule caps none", intent.AssignedCPUs),
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

// text returns what is wrong with s, "" for nothing.
func (r rule) text(s string) string {
	switch {
	case r.choices != nil:
		return r.choice(s)
	case r.pattern != "" && !regexp.MustCompile(r.pattern).MatchString(s):
		return fmt.Sprintf("is %s, want %s", quoteShort(s), r.means)
	case r.glob && !intent.ValidPattern(s):
		return fmt.Sprintf("is %s, a pattern with a [ that nothing closes, or an empty one", quoteShort(s))
	case r.cpus:
		if _, err := topology.ParseList(s); err != nil {
			return err.Error()
		}
	case r.absolute, r.socket:
		return r.path(s)
	case r.address && (s != "" || !r.optional):
		return address(s)
	}
	return ""
}

// address takes no names: what a name means at the node's start, nobody knows.
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
	if near, d := nearest(s, r.choices); len(r.choices) > 1 && d <= 2 {
		return fmt.Sprintf("is %s, want %s; nearest %q", quoteShort(s), want, near)
	}
	return fmt.Sprintf("is %s, want %s", quoteShort(s), want)
}

func (r rule) path(s string) string {
	switch {
	case s == "" && r.optional:
		return ""
	case !filepath.IsAbs(s) || strings.ContainsRune(s, 0):
		return fmt.Sprintf("is %s, want an absolute path", quoteShort(s))
	case r.socket && len(s) > maxSocketPath:
		return fmt.Sprintf("is %d bytes long; a socket path has at most %d", len(s), maxSocketPath)
	}
	return ""
}
