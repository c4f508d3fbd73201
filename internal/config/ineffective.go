package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// IneffectiveKeys lists the keys of a document that have no effect because of other keys of the document. For example,
// the keys of one placement policy have no effect with another placement.policy; the tag "only" of a field names the
// policy that reads the field. An agent accepts such keys, because another document can change the other keys. The list
// is empty for a malformed document.
func IneffectiveKeys(name string, data []byte) []Problem {
	c, d := decodeDocument(name, data)
	if d == nil || len(d.problems) > 0 {
		return nil
	}
	def := Default()
	var unread []Problem
	report := func(path, format string, args ...any) {
		unread = append(unread, Problem{File: name, Line: d.lines[path], Path: path, What: fmt.Sprintf(format, args...)})
	}
	policy := c.Placement.Policy
	visitFields(reflect.ValueOf(c.Placement), "placement", func(path string, f reflect.StructField, _ reflect.Type, v reflect.Value) {
		only := f.Tag.Get("only")
		before := reflect.ValueOf(def.Placement).FieldByName(f.Name)
		if only != "" && only != policy && !reflect.DeepEqual(v.Interface(), before.Interface()) {
			report(path, "has no effect with placement.policy: %s; set placement.policy: %s, or remove the key", policy, only)
		}
	})
	if policy != "none" && !c.Hooks.CPUSet.Enabled {
		report("placement.policy", "has no effect with hooks.cpuset.enabled: false; enable that hook, or remove the key")
	}
	switch key := "topologyManager.evictAfter"; {
	case c.TopologyManager.EvictAfter == 0:
	case c.TopologyManager.Refusal != "fail":
		report(key, "has no effect with topologyManager.refusal: %s; set topologyManager.refusal: fail, or remove the key", c.TopologyManager.Refusal)
	case !c.Cluster.Enabled:
		report(key, "has no effect with cluster.enabled: false; set cluster.enabled: true, or remove the key")
	}
	return unread
}

// Remarks lists the keys of a valid document that have a former name, no equivalent or no effect, sorted by line.
func Remarks(name string, data []byte) []Problem {
	all := append(KeyWarnings(name, data), IneffectiveKeys(name, data)...)
	slices.SortStableFunc(all, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return all
}

// ProblemOf makes a Problem from an error about a configuration. The error begins with a key, such as "pools.reserved:
// no CPU 99". ProblemOf adds the line of this key in the document.
func ProblemOf(name string, data []byte, err error) Problem {
	path, what, is := strings.Cut(err.Error(), ": ")
	_, d := decodeDocument(name, data)
	if d == nil || !is {
		return Problem{File: name, What: err.Error()}
	}
	return Problem{File: name, Line: d.lineOf(path), Path: path, What: what}
}
