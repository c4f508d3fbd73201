package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Problem is one error in the rules.
type Problem struct {
	Path     string // the place of the error below the configuration key rules, such as [0].match
	Position        // the place in the expression, if the error is in an expression
	What     string // what is wrong, without a subject, such as "is missing"
}

// String returns the path and the sentence, such as "rules[0].match: line 1, column 14: ...".
func (p Problem) String() string { return "rules" + p.Path + ": " + p.Sentence() }

// Sentence describes the error. If the place in the expression is known, the text begins with this place.
func (p Problem) Sentence() string {
	if p.Line == 0 {
		return p.What
	}
	return fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.What)
}

// Set holds compiled rules.
type Set struct{ rules []*rule }

// rule is a compiled rule.
type rule struct {
	name           string      // with Prefix, such as rules.web
	matchSource    string      // the source text of match
	match          *expression // the condition
	podOnly        bool        // match uses only the pod
	settings       []setting
	change         intentChange // what the rule changes in the requests of the pod
	refusalMessage string       // the message of the refusal; "" if the rule refuses nothing
	required       bool         // see RuleOptions.Required
}

// setting is one value that a rule sets.
type setting struct {
	value      lifecycle.Value // has the constant if expression is nil
	expression *expression
}

// intentChange is a change that a rule makes to the requests of a pod.
type intentChange struct {
	class       intent.Class
	pool        string
	numa        *intent.NUMABinding
	unlessAsked bool // the rule changes none of these if the pod or an earlier rule requests class, pool or numa
}

// isEmpty reports whether the rule changes no request.
func (w intentChange) isEmpty() bool { return w.class == intent.None && w.pool == "" && w.numa == nil }

// Prefix begins the name of a rule in lists of hooks, in reasons and in problems.
const Prefix = "rules."

// Compile compiles rules. If rules have errors, it returns all of the errors, and no Set.
func Compile(options []RuleOptions) (*Set, []Problem) {
	if len(options) == 0 {
		return &Set{}, nil
	}
	langs, err := newEnvironments()
	if err != nil {
		return nil, []Problem{{What: err.Error()}}
	}
	c := compiler{environments: langs}
	set, first := &Set{}, map[string]int{}
	for i, o := range options {
		c.path = fmt.Sprintf("[%d]", i)
		if before, twice := first[o.Name]; twice {
			c.addProblem(".name", "is %q, which is also the name of rules[%d]: give each rule its own name", shorten(o.Name), before)
		}
		first[o.Name] = i
		set.rules = append(set.rules, c.compileRule(o))
	}
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	return set, nil
}

// compiler compiles rules and collects their errors.
type compiler struct {
	environments environments
	path         string // the path of the current rule, such as [0]
	problems     []Problem
}

// addProblem adds an error at a path below the current rule.
func (c *compiler) addProblem(path, format string, args ...any) {
	c.problems = append(c.problems, Problem{Path: c.path + path, What: fmt.Sprintf(format, args...)})
}

// namePattern is the pattern of rule names.
var namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// compileRule compiles one rule.
func (c *compiler) compileRule(o RuleOptions) *rule {
	r := &rule{name: Prefix + o.Name, matchSource: o.Match, refusalMessage: o.Refuse, required: o.Required, change: c.compileIntentChange(o)}
	if !namePattern.MatchString(o.Name) {
		c.addProblem(".name", "is %q, want at most 63 small letters, digits and -, without - at the start or end", shorten(o.Name))
	}
	podOnly := ""
	if !r.change.isEmpty() {
		podOnly = "class, pool and numa apply to the whole pod"
	}
	for i, s := range o.Set {
		if s.Scope == lifecycle.OfPod.String() {
			podOnly = fmt.Sprintf("set[%d] has the scope pod", i)
		}
		r.settings = append(r.settings, c.compileSetting(fmt.Sprintf(".set[%d]", i), s))
	}
	if r.match, r.podOnly = c.compileMatch(o.Match, podOnly); r.change.isEmpty() && o.UnlessAsked {
		c.addProblem(".unlessAsked", "has no effect, because the rule sets none of class, pool and numa: leave it out")
	}
	if r.change.isEmpty() && len(r.settings) == 0 && r.refusalMessage == "" {
		c.addProblem("", "has no effect: add set, class, pool, numa or refuse")
	}
	if r.refusalMessage != "" && (len(r.settings) > 0 || !r.change.isEmpty()) {
		c.addProblem(".refuse", "cannot be combined with set, class, pool or numa, because a refused container is not created")
	}
	return r
}

// compileMatch compiles the condition of a rule. It also reports whether the condition uses only the pod. If the
// condition must not use the container, podOnly is the reason; otherwise podOnly is "".
func (c *compiler) compileMatch(text, podOnly string) (*expression, bool) {
	if strings.TrimSpace(text) == "" {
		c.addProblem(".match", `is missing, want an expression; "true" matches every container`)
		return nil, false
	}
	forPods, faults := compile(c.environments.pods, text, types.BoolType)
	if faults == nil {
		return forPods, true
	}
	whole, wrong := compile(c.environments.podAndContainer, text, types.BoolType)
	switch {
	case wrong != nil:
		c.addFaults(".match", wrong)
	case podOnly != "":
		at := faults[0].Position
		c.problems = append(c.problems, Problem{c.path + ".match", at, "uses the container, but only the pod is available here: " + podOnly})
	}
	return whole, false
}

// addFaults adds the errors of an expression, at a path below the current rule.
func (c *compiler) addFaults(path string, all []fault) {
	for _, f := range all {
		c.problems = append(c.problems, Problem{c.path + path, f.Position, f.message})
	}
}

// compileIntentChange compiles the change that a rule makes to the requests of a pod.
func (c *compiler) compileIntentChange(o RuleOptions) intentChange {
	w := intentChange{pool: o.Pool, unlessAsked: o.UnlessAsked}
	for _, class := range []intent.Class{intent.System, intent.Dedicated, intent.Shared, intent.Reclaimed} {
		if class.String() == o.Class {
			w.class = class
		}
	}
	if n := o.NUMA; n.AnySet() {
		nodes, err := topology.ParseList(n.Nodes)
		if err != nil {
			c.addProblem(".numa.nodes", "%v", err)
		}
		w.numa = &intent.NUMABinding{
			Exclusive: n.Exclusive, Count: n.Count, IDs: nodes, Even: n.Even, WholeCores: n.WholeCores, BySocket: n.BySocket, ExcludeOthers: n.Alone,
		}
		if n.Count != 0 && len(nodes) != 0 && n.Count != len(nodes) {
			c.addProblem(".numa.count", "is %d, but numa.nodes lists %d nodes: leave count out", n.Count, len(nodes))
		}
	}
	return w
}

// compileSetting compiles one value that a rule sets.
func (c *compiler) compileSetting(path string, o SettingOptions) setting {
	var field *lifecycle.FieldInfo
	for _, f := range lifecycle.Fields() {
		if f.Name == o.Field {
			field = &f
		}
	}
	if field == nil {
		c.addProblem(path+".field", "is %q, want the name of a field that docs/rules.md lists", shorten(o.Field))
		return setting{}
	}
	if why, no := placementFields[field.Field]; no {
		c.addProblem(path+".field", "is %q, which no rule can set: %s", o.Field, why)
		return setting{}
	}
	if wrong := checkKey(*field, o.Key); wrong != "" {
		c.addProblem(path+".key", "%s", wrong)
	}
	s := setting{value: lifecycle.Value{Field: field.Field, Key: o.Key}}
	env := c.environments.podAndContainer
	if o.Scope == lifecycle.OfPod.String() {
		if s.value.Scope, env = lifecycle.OfPod, c.environments.pods; !slices.Contains(podFields, field.Field) {
			c.addProblem(path+".scope", "is pod, but only containers have %s: want container", field.Name)
		}
	} else if slices.Contains(podOnlyFields, field.Field) {
		c.addProblem(path+".scope", "is %q, but only pods have %s: want pod", o.Scope, field.Name)
	}
	if len(o.Options) > 0 && field.Field != lifecycle.MountPoint {
		c.addProblem(path+".options", "are only for mounts, and %s is not a mount: leave them out", field.Name)
	}
	c.compileValue(path, &s, o, env)
	return s
}

// compileValue compiles the value of a setting, which is a constant or an expression.
func (c *compiler) compileValue(path string, s *setting, o SettingOptions, env *cel.Env) {
	f := s.value.Field
	switch {
	case f == lifecycle.DeviceNode || f == lifecycle.CDIDevice:
		if o.Value != "" || o.ValueExpression != "" {
			c.addProblem(path+".value", "is set, but the key of %s already names the device: leave value and valueExpression out", f)
		}
		return
	case o.Value != "" && o.ValueExpression != "":
		c.addProblem(path+".valueExpression", "cannot be combined with value: leave one of them out")
	case o.ValueExpression != "":
		want := types.StringType
		if f.IsNumeric() {
			want = types.IntType
		}
		var faults []fault
		s.expression, faults = compile(env, o.ValueExpression, want)
		c.addFaults(path+".valueExpression", faults)
	case f.IsNumeric():
		n, err := strconv.ParseInt(o.Value, 10, 64)
		if err != nil {
			c.addProblem(path+".value", "is %q, want a number in quotes: %s", shorten(o.Value), f.Info().Unit)
			return
		}
		if wrong := s.setNumber(n); wrong != "" {
			c.addProblem(path+".value", "%s", wrong)
		}
	case o.Value == "" && f != lifecycle.Env && f != lifecycle.Annotation:
		c.addProblem(path+".value", "is missing, want %s; or give valueExpression", f.Info().Unit)
	default:
		if wrong := s.setText(o.Value, o.Options); wrong != "" {
			c.addProblem(path+".value", "%s", wrong)
		}
	}
	if f == lifecycle.MountPoint && s.expression != nil {
		s.value.Mount = &lifecycle.Mount{Options: o.Options}
	}
}

// setNumber makes n the value of the setting. It returns what is wrong with n, or "".
func (s *setting) setNumber(n int64) string {
	s.value.Int = n
	return checkNumber(s.value.Field, n)
}

// setText makes a text the value of the setting. It returns what is wrong with the text, or "".
func (s *setting) setText(text string, options []string) string {
	switch {
	case strings.ContainsRune(text, 0):
		return "has a NUL character (code 0), which no value may have"
	case s.value.Field != lifecycle.MountPoint:
		s.value.Text = text
		return checkText(s.value.Field, s.value.Key, text)
	case !strings.HasPrefix(text, "/") || checkPath(text) != "":
		return fmt.Sprintf("is %q, want an absolute path on the node, without . and .. and without / at the end", shorten(text))
	}
	if len(options) == 0 {
		options = defaultMountOptions
	} else if !slices.Contains(options, "bind") && !slices.Contains(options, "rbind") {
		options = append([]string{"bind"}, options...)
	}
	s.value.Mount = &lifecycle.Mount{Destination: s.value.Key, Type: "bind", Source: text, Options: options}
	return ""
}
