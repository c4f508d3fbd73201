package rulestest

import (
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/engine"
)

// Result is the result of one case.
type Result struct {
	Name string `json:"name"`
	// Differences are the differences from the expected result. The case fails if there is one.
	Differences []Difference `json:"differences,omitempty"`
	// Error is the reason why the case could not run; "" if it ran.
	Error string `json:"error,omitempty"`
}

// Difference is one unexpected value. The field What is the key in the expected result, such as "set env GOMAXPROCS".
// The fields Want and Got are empty if there is no such value.
type Difference struct {
	What string `json:"what"`
	Want string `json:"want"`
	Got  string `json:"got"`
}

// Report has the results of all cases.
type Report struct {
	Cases []Result `json:"cases"`
	// Rules counts in how many cases each rule matches, in the order of the rules.
	Rules []RuleCount `json:"rules"`
	// Failed counts the cases that ran and have a difference.
	Failed int `json:"failed"`
	// NotRun counts the cases that could not run.
	NotRun int `json:"wrong"`
}

// RuleCount is the number of cases in which a rule matches.
type RuleCount struct {
	Name  string `json:"name"`
	Cases int    `json:"cases"`
}

// Run runs each case on a node of its own. The function node makes a new node without pods. The policy of this node
// must have the rules of f.Config.
func (f *File) Run(node func() *engine.State) Report {
	var report Report
	count := map[string]int{}
	for i := range f.Cases {
		c := &f.Cases[i]
		result := Result{Name: c.Name}
		s, err := c.subject()
		if err != nil {
			result.Error = err.Error()
			report.NotRun++
			report.Cases = append(report.Cases, result)
			continue
		}
		got := simulate(node(), s)
		for _, name := range got.matched {
			count[name]++
		}
		if result.Differences = c.Want.compare(got); len(result.Differences) > 0 {
			report.Failed++
		}
		report.Cases = append(report.Cases, result)
	}
	for _, r := range f.Config.Rules {
		report.Rules = append(report.Rules, RuleCount{r.Name, count[r.Name]})
	}
	return report
}

// compare returns the differences from the expected result.
func (w Want) compare(got outcome) (all []Difference) {
	differ := func(what, want, got string) {
		if want != got {
			all = append(all, Difference{what, want, got})
		}
	}
	if w.Matched != nil {
		differ("matched", strings.Join(*w.Matched, ", "), strings.Join(got.matched, ", "))
	}
	all = append(all, compareSets("set", w.Set, got.set)...)
	all = append(all, compareSets("setPod", w.SetPod, got.setPod)...)
	for _, field := range []struct {
		key  string
		want *string
		got  string
	}{{"class", w.Class, got.class}, {"pool", w.Pool, got.pool}, {"numa", w.NUMA, got.numa}} {
		if field.want != nil {
			differ(field.key, *field.want, field.got)
		}
	}
	if (w.Refused == "") != (got.refusal == "") || !strings.Contains(got.refusal, w.Refused) {
		all = append(all, Difference{"refused", w.Refused, got.refusal})
	}
	if w.Problems != nil {
		all = append(all, compareProblems(*w.Problems, got.problems)...)
	}
	return all
}

// compareSets returns the differences between two sets of values. The parameter key is the key of the set in Want.
func compareSets(key string, want *map[string]string, got map[string]string) (all []Difference) {
	if want == nil {
		return nil
	}
	names := maps.Clone(got)
	maps.Copy(names, *want)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		w, wanted := (*want)[name]
		g, has := got[name]
		if w != g || wanted != has {
			all = append(all, Difference{key + " " + name, displayValue(w, wanted), displayValue(g, has)})
		}
	}
	return all
}

// displayValue returns a value for users. It returns "" if there is no value, and two quotes if the value is empty.
func displayValue(value string, has bool) string {
	if has && value == "" {
		return `""`
	}
	return value
}

// compareProblems looks for a different problem for each expected text: a problem that contains the text. It returns
// the expected texts for which it found no problem, and the problems that it found for no text.
func compareProblems(want, got []string) (all []Difference) {
	left := slices.Clone(got)
	for _, part := range want {
		at := slices.IndexFunc(left, func(p string) bool { return strings.Contains(p, part) })
		if at < 0 {
			all = append(all, Difference{"problems", part, ""})
			continue
		}
		left = slices.Delete(left, at, at+1)
	}
	for _, p := range left {
		all = append(all, Difference{"problems", "", p})
	}
	return all
}
