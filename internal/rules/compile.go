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

// Problem is one error in rules, and its place: the path below the key rules, such as [0].match, and the place in
// an expression.
type Problem struct {
	Path string
	Where
	What string
}

// String returns "rules[0].match:1:14: what", without the place if that is unknown.
func (p Problem) String() string { return "rules" + p.Path + ": " + p.Sentence() }

// Sentence describes the error, with its place in the expression.
func (p Problem) Sentence() string {
	if p.Line == 0 {
		return p.What
	}
	return fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.What)
}

// Set are compiled rules.
type Set struct{ rules []*rule }

// rule is a compiled rule.
type rule struct {
	name     string // as hooks are named
	text     string // of match
	match    *expression
	pods     bool // match uses only the pod
	settings []setting
	wish     wish
	refuse   string
	required bool
}

// setting is one value that a rule sets.
type setting struct {
	value lifecycle.Value // with the constant
	from  *expression     // nil for a constant
}

// wish is a change that a rule makes to the requests of a pod.
type wish struct {
	class       intent.Class
	pool        string
	numa        *intent.NUMABinding
	unlessAsked bool
}

func (w wish) none() bool { return w.class == intent.None && w.pool == "" && w.numa == nil }

// Prefix begins the name of a rule in lists of hooks, in reasons and in problems.
const Prefix = "rules."

// Compile compiles rules. It returns all errors in them. If there are any, it returns no Set.
func Compile(options []RuleOptions) (*Set, []Problem) {
	if len(options) == 0 {
		return &Set{}, nil
	}
	langs, err := newLanguages()
	if err != nil {
		return nil, []Problem{{What: err.Error()}}
	}
	c := compiler{langs: langs}
	set, first := &Set{}, map[string]int{}
	for i, o := range options {
		c.at = fmt.Sprintf("[%d]", i)
		if before, twice := first[o.Name]; twice {
			c.problem(".name", "is %q, and so is that of rules[%d]", printable(o.Name), before)
		}
		first[o.Name] = i
		set.rules = append(set.rules, c.rule(o))
	}
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	return set, nil
}

// compiler collects the errors in rules.
type compiler struct {
	langs    languages
	at       string // the rule at hand, as [0]
	problems []Problem
}

func (c *compiler) problem(path, format string, args ...any) {
	c.problems = append(c.problems, Problem{Path: c.at + path, What: fmt.Sprintf(format, args...)})
}

// namePattern is the pattern of rule names.
var namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (c *compiler) rule(o RuleOptions) *rule {
	r := &rule{name: Prefix + o.Name, text: o.Match, refuse: o.Refuse, required: o.Required, wish: c.wish(o)}
	if !namePattern.MatchString(o.Name) {
		c.problem(".name", "is %q, want small letters, digits and -, at most 63", printable(o.Name))
	}
	podOnly := ""
	if !r.wish.none() {
		podOnly = "class, pool and numa apply to the whole pod"
	}
	for i, s := range o.Set {
		if s.Scope == lifecycle.OfPod.String() {
			podOnly = fmt.Sprintf("set[%d] is of scope pod", i)
		}
		r.settings = append(r.settings, c.setting(fmt.Sprintf(".set[%d]", i), s))
	}
	if r.match, r.pods = c.match(o.Match, podOnly); r.wish.none() && o.UnlessAsked {
		c.problem(".unlessAsked", "is about class, pool and numa, and the rule sets none of them")
	}
	if r.wish.none() && len(r.settings) == 0 && r.refuse == "" {
		c.problem("", "has no effect: give it set, class, pool, numa or refuse")
	}
	if r.refuse != "" && (len(r.settings) > 0 || !r.wish.none()) {
		c.problem(".refuse", "cannot be combined: a refused container gets nothing else")
	}
	return r
}

// match compiles the condition. podOnly is the reason for which the condition may use only the pod; "" if it may
// use the container, too.
func (c *compiler) match(text, podOnly string) (*expression, bool) {
	if strings.TrimSpace(text) == "" {
		c.problem(".match", `is missing, want an expression; "true" matches every container`)
		return nil, false
	}
	forPods, faults := compile(c.langs.pods, text, types.BoolType)
	if faults == nil {
		return forPods, true
	}
	whole, wrong := compile(c.langs.whole, text, types.BoolType)
	switch {
	case wrong != nil:
		c.faults(".match", wrong)
	case podOnly != "":
		at := faults[0].Where
		c.problems = append(c.problems, Problem{c.at + ".match", at, "uses the container, but only the pod is available here: " + podOnly})
	}
	return whole, false
}

func (c *compiler) faults(path string, all []fault) {
	for _, f := range all {
		c.problems = append(c.problems, Problem{c.at + path, f.Where, f.what})
	}
}

func (c *compiler) wish(o RuleOptions) wish {
	w := wish{pool: o.Pool, unlessAsked: o.UnlessAsked}
	for _, class := range []intent.Class{intent.System, intent.Dedicated, intent.Shared, intent.Reclaimed} {
		if class.String() == o.Class {
			w.class = class
		}
	}
	if n := o.NUMA; n.AnySet() {
		nodes, err := topology.ParseList(n.Nodes)
		if err != nil {
			c.problem(".numa.nodes", "%v", err)
		}
		w.numa = &intent.NUMABinding{
			Exclusive: n.Exclusive, Count: n.Count, IDs: nodes, Even: n.Even, WholeCores: n.WholeCores, BySocket: n.BySocket, ExcludeOthers: n.Alone,
		}
		if n.Count != 0 && len(nodes) != 0 && n.Count != len(nodes) {
			c.problem(".numa.count", "is %d, and nodes lists %d", n.Count, len(nodes))
		}
	}
	return w
}

// setting compiles one value that a rule sets.
func (c *compiler) setting(path string, o SettingOptions) setting {
	var field *lifecycle.FieldInfo
	for _, f := range lifecycle.Fields() {
		if f.Name == o.Field {
			field = &f
		}
	}
	if field == nil {
		c.problem(path+".field", "is %q, want the name of a field, as in docs/rules.md", printable(o.Field))
		return setting{}
	}
	if why, no := elsewhere[field.Field]; no {
		c.problem(path+".field", "is %q, which no rule can set: %s", o.Field, why)
		return setting{}
	}
	if wrong := wrongKey(*field, o.Key); wrong != "" {
		c.problem(path+".key", "%s", wrong)
	}
	s := setting{value: lifecycle.Value{Field: field.Field, Key: o.Key}}
	env := c.langs.whole
	if o.Scope == lifecycle.OfPod.String() {
		if s.value.Scope, env = lifecycle.OfPod, c.langs.pods; !slices.Contains(onPods, field.Field) {
			c.problem(path+".scope", "is pod, and %s belongs to a container", field.Name)
		}
	} else if slices.Contains(onlyPods, field.Field) {
		c.problem(path+".scope", "is %q, and %s is a pod's; want pod", o.Scope, field.Name)
	}
	if len(o.Options) > 0 && field.Field != lifecycle.MountPoint {
		c.problem(path+".options", "are for mounts, and %s is not a mount", field.Name)
	}
	c.value(path, &s, o, env)
	return s
}

// value compiles the value of a setting, which is a constant or an expression.
func (c *compiler) value(path string, s *setting, o SettingOptions, env *cel.Env) {
	f := s.value.Field
	switch {
	case f == lifecycle.DeviceNode || f == lifecycle.CDIDevice:
		if o.Value != "" || o.ValueExpression != "" {
			c.problem(path+".value", "is for other fields: a %s has only its key as a name", f)
		}
		return
	case o.Value != "" && o.ValueExpression != "":
		c.problem(path+".valueExpression", "cannot be combined with value; give one of them")
	case o.ValueExpression != "":
		want := types.StringType
		if f.Numeric() {
			want = types.IntType
		}
		var faults []fault
		s.from, faults = compile(env, o.ValueExpression, want)
		c.faults(path+".valueExpression", faults)
	case f.Numeric():
		n, err := strconv.ParseInt(o.Value, 10, 64)
		if err != nil {
			c.problem(path+".value", "is %q, want a number in quotes: %s", printable(o.Value), f.Info().Unit)
			return
		}
		if wrong := s.number(n); wrong != "" {
			c.problem(path+".value", "%s", wrong)
		}
	case o.Value == "" && f != lifecycle.Env && f != lifecycle.Annotation:
		c.problem(path+".value", "is missing, want %s; or give valueExpression", f.Info().Unit)
	default:
		if wrong := s.text(o.Value, o.Options); wrong != "" {
			c.problem(path+".value", "%s", wrong)
		}
	}
	if f == lifecycle.MountPoint && s.from != nil {
		s.value.Mount = &lifecycle.Mount{Options: o.Options}
	}
}

// number sets a number, and returns what is wrong with it.
func (s *setting) number(n int64) string {
	s.value.Int = n
	return wrongNumber(s.value.Field, n)
}

// text sets a text, and returns what is wrong with it.
func (s *setting) text(text string, options []string) string {
	switch {
	case strings.ContainsRune(text, 0):
		return "has a character of code 0"
	case s.value.Field != lifecycle.MountPoint:
		s.value.Text = text
		return wrongText(s.value.Field, s.value.Key, text)
	case !strings.HasPrefix(text, "/") || uncleanPath(text) != "":
		return fmt.Sprintf("is %q, want an absolute path of the node in its shortest form", printable(text))
	}
	if len(options) == 0 {
		options = usualOptions
	} else if !slices.Contains(options, "bind") && !slices.Contains(options, "rbind") {
		options = append([]string{"bind"}, options...)
	}
	s.value.Mount = &lifecycle.Mount{Destination: s.value.Key, Type: "bind", Source: text, Options: options}
	return ""
}
