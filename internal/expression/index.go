package expression

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// Index counts the subjects for which expressions hold, by group. It has the subjects of each value of
// each key, so that it compares an expression with values instead of subjects. It adds a joint key when
// an expression first has that key. The pod of a subject must not change.
type Index struct {
	slots    map[string]int   // by id of the subject
	subjects []indexedSubject // by slot
	free     []int            // slots without a subject
	all      slotSet
	groups   map[string]slotSet
	// keys has the values by key, and labels the values of keys pod/labels/NAME by NAME. joint lists the
	// joint keys that are in keys, the oldest first.
	keys, labels map[string]*valueIndex
	joint        []string
}

// maxJoint limits the joint keys of an index, because Put computes the value of each for every subject.
const maxJoint = 16

// indexedSubject is a subject of an index, with its group.
type indexedSubject struct {
	Subject

	group string
}

// valueIndex has the subjects of one key. all has the subjects with any value, and values has the subjects of each
// value.
type valueIndex struct {
	all    slotSet
	values map[string]slotSet
}

// NewIndex returns an index without subjects.
func NewIndex() *Index {
	return &Index{slots: map[string]int{}, groups: map[string]slotSet{}, keys: map[string]*valueIndex{}, labels: map[string]*valueIndex{}}
}

// Put adds or replaces a subject.
func (x *Index) Put(id string, s Subject, group string) {
	if slot, known := x.slots[id]; known {
		if was := &x.subjects[slot]; was.group == group && was.equals(s) {
			was.Pod = s.Pod // so that the older pod can be freed
			return
		}
		x.Remove(id)
	}
	slot := len(x.subjects)
	if last := len(x.free) - 1; last >= 0 {
		slot, x.free = x.free[last], x.free[:last]
	} else {
		x.subjects = append(x.subjects, indexedSubject{})
	}
	x.slots[id], x.subjects[slot] = slot, indexedSubject{s, group}
	x.all.add(slot)
	addTo(x.groups, group, slot)
	x.eachValue(s, func(of map[string]*valueIndex, key, value string) { addValue(of, key, value, slot) })
}

func addValue(of map[string]*valueIndex, key, value string, slot int) {
	if of[key] == nil {
		of[key] = &valueIndex{values: map[string]slotSet{}}
	}
	of[key].all.add(slot)
	addTo(of[key].values, value, slot)
}

// Remove removes a subject, if the index has it.
func (x *Index) Remove(id string) {
	slot, known := x.slots[id]
	if !known {
		return
	}
	was := x.subjects[slot]
	delete(x.slots, id)
	x.subjects[slot], x.free = indexedSubject{}, append(x.free, slot)
	x.all.remove(slot)
	removeFrom(x.groups, was.group, slot)
	x.eachValue(was.Subject, func(of map[string]*valueIndex, key, value string) {
		of[key].all.remove(slot)
		if removeFrom(of[key].values, value, slot); len(of[key].values) == 0 {
			delete(of, key)
		}
	})
}

// Count adds the number of subjects for which all expressions hold to sums, by group.
func (x *Index) Count(sums map[string]int, all ...*Expression) {
	found := x.all
	for _, e := range all {
		found = found.and(x.subjectsMatching(e))
	}
	for group, subjects := range x.groups {
		if n := found.countCommon(subjects); n > 0 {
			sums[group] += n
		}
	}
}

// subjectsMatching returns the subjects for which an expression holds.
func (x *Index) subjectsMatching(e *Expression) (found slotSet) {
	if e.Operator == "AlwaysTrue" {
		return x.all
	}
	values := x.valuesOf(e.Key)
	switch e.Operator {
	case "NotEqual":
		return x.all.minus(values.withOneOf(e.Values))
	case "Equals", "In", "NotIn":
		if found = values.all; !slices.Contains(e.Values, "*") {
			found = values.withOneOf(e.Values)
		}
	case "Exists", "NotExists":
		found = values.all
	case "Matches", "MatchesAny", "MatchesNot", "MatchesNone":
		found = values.matching(e.Values)
	default:
		return nil
	}
	if slices.Contains([]string{"NotIn", "NotExists", "MatchesNot", "MatchesNone"}, e.Operator) {
		return x.all.minus(found)
	}
	return found
}

// valuesOf returns the values of a key.
func (x *Index) valuesOf(key string) *valueIndex {
	if strings.HasPrefix(key, ":") && !slices.Contains(x.joint, key) {
		x.addJoint(key)
	}
	values := x.keys[canonicalKey(key)]
	if label, is := strings.CutPrefix(key, labelsPrefix); is {
		values = x.labels[label]
	}
	if values == nil {
		return &valueIndex{}
	}
	return values
}

// addJoint adds the values of a joint key, in place of the oldest one if there are too many.
func (x *Index) addJoint(key string) {
	if len(x.joint) == maxJoint {
		delete(x.keys, x.joint[0])
		x.joint = slices.Delete(x.joint, 0, 1)
	}
	x.joint = append(x.joint, key)
	for _, slot := range x.slots {
		if value, ok := x.subjects[slot].value(key); ok {
			addValue(x.keys, key, value, slot)
		}
	}
}

// withOneOf returns the subjects that have one of the values.
func (v *valueIndex) withOneOf(values []string) slotSet {
	if len(values) == 1 {
		return v.values[values[0]]
	}
	var found slotSet
	for _, value := range values {
		found.addAll(v.values[value])
	}
	return found
}

// matching returns the subjects whose value matches one of the patterns.
func (v *valueIndex) matching(patterns []string) (found slotSet) {
	all := make([]glob, len(patterns))
	for i, pattern := range patterns {
		all[i] = newGlob(pattern)
	}
	for value, subjects := range v.values {
		if slices.ContainsFunc(all, func(g glob) bool { return g.matches(value) }) {
			found.addAll(subjects)
		}
	}
	return found
}

// glob is a pattern that is compared with many values. Every value that matches begins with prefix and contains infix.
type glob struct{ pattern, prefix, infix string }

func newGlob(pattern string) glob {
	g := glob{pattern: pattern}
	if strings.ContainsAny(pattern, `[\`) { // the pieces would not be literal texts
		return g
	}
	pieces := strings.FieldsFunc(pattern, func(r rune) bool { return r == '*' || r == '?' })
	for i, piece := range pieces {
		if i == 0 && strings.HasPrefix(pattern, piece) {
			g.prefix = piece
		}
		if len(piece) > len(g.infix) {
			g.infix = piece
		}
	}
	return g
}

func (g *glob) matches(value string) bool {
	if !strings.HasPrefix(value, g.prefix) || !strings.Contains(value, g.infix) {
		return false
	}
	is, err := path.Match(g.pattern, value)
	return is && err == nil
}

// canonicalKey returns the shorter form of a key that has two forms.
func canonicalKey(key string) string {
	if short, is := strings.CutPrefix(key, "pod/"); is && (short == "namespace" || short == "qosclass") {
		return short
	}
	return key
}

// eachValue calls do for each key of which a subject has a value, with the map of the index that has the key.
func (x *Index) eachValue(s Subject, do func(of map[string]*valueIndex, key, value string)) {
	for _, key := range [...]string{"name", "namespace", "qosclass", "pod/name", "pod/uid", "pod/id"} {
		if value, ok := s.resolve(key); ok {
			do(x.keys, key, value)
		}
	}
	for _, key := range x.joint {
		if value, ok := s.value(key); ok {
			do(x.keys, key, value)
		}
	}
	if s.Pod == nil {
		return
	}
	for label, value := range s.Pod.Labels {
		if isReadable(value) {
			do(x.labels, label, value)
		}
	}
}

// equals reports whether two subjects have the same values of all keys.
func (s Subject) equals(o Subject) bool {
	a, b := s.Pod, o.Pod
	return s.Name == o.Name && s.QoS == o.QoS && (a == b || a != nil && b != nil &&
		a.Name == b.Name && a.UID == b.UID && a.ID == b.ID && a.Namespace == b.Namespace && maps.Equal(a.Labels, b.Labels))
}
