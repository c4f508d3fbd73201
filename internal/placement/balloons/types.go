package balloons

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
)

// The types that exist in any case.
const (
	reservedType = "reserved"
	defaultType  = "default"
)

// Types returns the types in the order in which containers are matched, including the built-in
// types reserved and default. If the options lack the type reserved, it comes first, so that a
// pattern of another type does not take the node's own system containers.
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

// takes reports whether a type takes a container.
func (t *TypeOptions) takes(s Subject) bool {
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

// most returns how many CPUs a balloon may have.
func (t *TypeOptions) most() int {
	if t.MaxCPUs == 0 {
		return maxCPUs
	}
	return t.MaxCPUs
}

// size returns how many CPUs a balloon has if its containers request the given amount.
func (t *TypeOptions) size(milli int64, used bool) int {
	n := int(min((milli+milliOfCPU-1)/milliOfCPU, maxCPUs))
	if used {
		n = max(n, 1)
	}
	return min(max(n, t.MinCPUs), t.most())
}

// balloon returns the name of one of the type's balloons.
func (t *TypeOptions) balloon(index int) string { return t.Name + "[" + strconv.Itoa(index) + "]" }

// split returns the type and the index in a balloon's name.
func split(balloon string) (name string, index int, ok bool) {
	name, rest, found := strings.Cut(balloon, "[")
	index, err := strconv.Atoi(strings.TrimSuffix(rest, "]"))
	return name, index, found && err == nil && index >= 0
}

// Wrong is a fault in the options: the key that has it, and a sentence.
type Wrong struct{ Path, What string }

// Check returns faults that concern several options together; each key was validated before.
// cpus is the number of CPUs of the node; 0 if it is not known.
func Check(o PolicyOptions) (wrong []Wrong) {
	report := func(path, format string, args ...any) {
		wrong = append(wrong, Wrong{path, fmt.Sprintf(format, args...)})
	}
	seen := map[string]bool{}
	for i := range o.BalloonTypes {
		t, at := &o.BalloonTypes[i], fmt.Sprintf("balloonTypes[%d].", i)
		if seen[t.Name] {
			report(at+"name", "%s is given twice", quote(t.Name))
		}
		seen[t.Name] = true
		if t.MaxCPUs != 0 && t.MinCPUs > t.MaxCPUs {
			report(at+"minCPUs", "is %d, above maxCPUs, which is %d", t.MinCPUs, t.MaxCPUs)
		}
		if t.MaxBalloons != 0 && t.MinBalloons > t.MaxBalloons {
			report(at+"minBalloons", "is %d, above maxBalloons, which is %d", t.MinBalloons, t.MaxBalloons)
		}
		if t.Name == reservedType && (t.MinBalloons > 1 || t.MaxBalloons > 1) {
			report(at+"maxBalloons", "the type reserved has one balloon")
		}
		wrong = append(wrong, checkExpressions(at+"matchExpressions", t.MatchExpressions)...)
		if key := wrongKey(t.GroupBy); key != "" {
			report(at+"groupBy", "has the key %s, want pod/labels/KEY, %s", quote(key), strings.Join(keys(), ", "))
		}
	}
	wrong = append(wrong, checkComponents(o.BalloonTypes)...)
	wrong = append(wrong, checkSchedulingClasses(o)...)
	return append(wrong, checkExpressions("preserve.matchExpressions", o.Preserve.MatchExpressions)...)
}

func checkExpressions(at string, all []ExpressionOptions) (wrong []Wrong) {
	for i := range all {
		if key, what := all[i].wrong(); what != "" {
			wrong = append(wrong, Wrong{fmt.Sprintf("%s[%d].%s", at, i, key), what})
		}
	}
	return wrong
}

// wrongKey returns the first key in a template that no container has; "" for none.
func wrongKey(template string) string {
	for {
		_, rest, more := strings.Cut(template, "$")
		if !more {
			return ""
		}
		var key string
		if key, template = cutKey(rest); !isKey(key) {
			return "$" + key
		}
	}
}

func quote(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return strconv.Quote(s)
}
