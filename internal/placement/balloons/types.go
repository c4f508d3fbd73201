package balloons

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/expression"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement/class"
)

// The names of the types that always exist.
const (
	reservedType = "reserved"
	defaultType  = "default"
)

// Types returns all types, also the built-in types reserved and default. A container gets the first of them that
// matches it. If the options lack the type reserved, this type comes first, so that a pattern of another type does not
// take the node's own system containers.
func Types(o PolicyOptions) []TypeOptions {
	named := func(name string) bool {
		return slices.ContainsFunc(o.BalloonTypes, func(t TypeOptions) bool { return t.Name == name })
	}
	var out []TypeOptions
	if !named(reservedType) {
		out = append(out, TypeOptions{Name: reservedType, Namespaces: o.ReservedPoolNamespaces, MinBalloons: 1, MaxBalloons: 1, AllocatorPriority: "normal"})
	}
	for _, t := range o.BalloonTypes {
		if t.Name == reservedType {
			t.Namespaces = slices.Concat(t.Namespaces, o.ReservedPoolNamespaces)
			t.MinBalloons, t.MaxBalloons = 1, 1
		}
		out = append(out, t)
	}
	if !named(defaultType) {
		out = append(out, TypeOptions{Name: defaultType, MinBalloons: 1, MaxBalloons: 1, AllocatorPriority: "low"})
	}
	return out
}

// matches reports whether balloons of a type take a container.
func (t *TypeOptions) matches(s Subject) bool {
	return anyMatches(t.MatchExpressions, s) || slices.ContainsFunc(t.Namespaces, func(p string) bool { return intent.MatchNamespace(p, s.Pod.Namespace) })
}

// anyMatches reports whether one of the expressions holds for a container.
func anyMatches(all []ExpressionOptions, s Subject) bool {
	for i := range all {
		if all[i].matches(s) {
			return true
		}
	}
	return false
}

// maxCPUs returns how many CPUs a balloon of the type may have at most.
func (t *TypeOptions) maxCPUs() int {
	if t.MaxCPUs == 0 {
		return maxCPUs
	}
	return t.MaxCPUs
}

// size returns how many CPUs a balloon of the type has. The parameter milli is the sum of the CPU requests of the
// balloon's containers, in milli-CPUs. If used is true, the balloon has containers.
func (t *TypeOptions) size(milli int64, used bool) int {
	n := int(min((milli+milliOfCPU-1)/milliOfCPU, maxCPUs))
	if used {
		n = max(n, 1)
	}
	return min(max(n, t.MinCPUs), t.maxCPUs())
}

// balloonName returns the name of the type's balloon with an index.
func (t *TypeOptions) balloonName(index int) string { return t.Name + "[" + strconv.Itoa(index) + "]" }

// splitName returns the type's name and the index in the name of a balloon; false if it is not the name of a balloon.
func splitName(balloon string) (name string, index int, ok bool) {
	name, rest, found := strings.Cut(balloon, "[")
	index, err := strconv.Atoi(strings.TrimSuffix(rest, "]"))
	return name, index, found && err == nil && index >= 0
}

// Check returns the problems that concern several options together. Each key was validated before.
func Check(o PolicyOptions) (wrong []class.Problem) {
	report := func(path, format string, args ...any) {
		wrong = append(wrong, class.Problem{Path: path, Text: fmt.Sprintf(format, args...)})
	}
	first := map[string]int{} // the index of the first type with a name
	for i := range o.BalloonTypes {
		t, at := &o.BalloonTypes[i], fmt.Sprintf("balloonTypes[%d].", i)
		if other, taken := first[t.Name]; taken {
			report(at+"name", "%s is also the name of balloonTypes[%d]: give each type its own name", class.Quote(t.Name), other)
		} else {
			first[t.Name] = i
		}
		if t.MaxCPUs != 0 && t.MinCPUs > t.MaxCPUs {
			report(at+"minCPUs", "is %d, above maxCPUs, which is %d", t.MinCPUs, t.MaxCPUs)
		}
		if t.MaxBalloons != 0 && t.MinBalloons > t.MaxBalloons {
			report(at+"minBalloons", "is %d, above maxBalloons, which is %d", t.MinBalloons, t.MaxBalloons)
		}
		if t.Name == reservedType && (t.MinBalloons > 1 || t.MaxBalloons > 1) {
			report(at+"maxBalloons", "the type reserved has exactly one balloon: leave out minBalloons and maxBalloons")
		}
		wrong = append(wrong, checkPatterns(at, t)...)
		wrong = append(wrong, checkExpressions(at+"matchExpressions", t.MatchExpressions)...)
		if key := wrongKey(t.GroupBy); key != "" {
			report(at+"groupBy", "has the key %s, want pod/labels/KEY, %s", class.Quote(key), strings.Join(expression.Keys(), ", "))
		}
	}
	wrong = append(wrong, checkComponents(o.BalloonTypes)...)
	known, faults := class.SchedulingClasses(o.SchedulingClasses).Check()
	wrong = append(wrong, faults...)
	for i := range o.BalloonTypes {
		wrong = append(wrong, class.CheckSchedulingClass(known, fmt.Sprintf("balloonTypes[%d].schedulingClass", i), o.BalloonTypes[i].SchedulingClass)...)
	}
	wrong = append(wrong, checkLoads(o)...)
	wrong = append(wrong, checkCPUClasses(o)...)
	return append(wrong, checkExpressions("preserve.matchExpressions", o.Preserve.MatchExpressions)...)
}

// checkExpressions returns the problems of a list of expressions. The parameter at is the configuration path of the
// list.
func checkExpressions(at string, all []ExpressionOptions) (wrong []class.Problem) {
	for i := range all {
		if key, reason := all[i].fault(); reason != "" {
			wrong = append(wrong, class.Problem{Path: fmt.Sprintf("%s[%d].%s", at, i, key), Text: reason})
		}
	}
	return wrong
}

// wrongKey returns the first key in a template that is not a key of expressions; "" if all keys are valid.
func wrongKey(template string) string {
	for {
		_, rest, more := strings.Cut(template, "$")
		if !more {
			return ""
		}
		var key string
		if key, template = expression.CutKey(rest); !expression.IsKey(key) {
			return "$" + key
		}
	}
}
