package expression

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// Index counts the subjects (containers) for which expressions hold, separately for each group of subjects. For each
// value of a key, it knows which subjects have the value. So it compares an expression with each value once, not with
// each subject. Each subject has a slot, a small number. A joint key is added when the first expression with this key
// is counted. The caller must not change the pod of a subject.
type Index struct {
	slots    map[string]int         // the slot of each subject, by the subject's id
	subjects []indexedSubject       // by slot
	free     []int                  // slots without a subject
	all      slotSet                // slots with a subject
	groups   map[string]slotSet     // the slots of each group's subjects
	keys     map[string]*valueIndex // by key, except keys of labels
	labels   map[string]*valueIndex // for the keys pod/labels/NAME, by NAME
	joint    []string               // the joint keys in the map keys, the oldest first
}

// maxJoint limits the number of joint keys of an index. A joint key is one key that joins several keys. The limit is
// needed because Put computes the value of each joint key for every subject.
const maxJoint = 16

// indexedSubject is a subject of an index, with its group.
type indexedSubject struct {
	Subject

	group string
}

// valueIndex has the values of one key.
type valueIndex struct {
	all    slotSet            // the subjects that have a value of the key
	values map[string]slotSet // the subjects that have each value
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
	x.eachValue(s, func(indexes map[string]*valueIndex, key, value string) { addValue(indexes, key, value, slot) })
}

// addValue stores that the subject in a slot has a value of a key.
func addValue(indexes map[string]*valueIndex, key, value string, slot int) {
	if indexes[key] == nil {
		indexes[key] = &valueIndex{values: map[string]slotSet{}}
	}
	indexes[key].all.add(slot)
	addTo(indexes[key].values, value, slot)
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
	x.eachValue(was.Subject, func(indexes map[string]*valueIndex, key, value string) {
		indexes[key].all.remove(slot)
		if removeFrom(indexes[key].values, value, slot); len(indexes[key].values) == 0 {
			delete(indexes, key)
		}
	})
}

// Count counts the subjects for which all expressions hold. It adds the number for each group to sums.
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

// valuesOf returns the values of a key. It adds a joint key that the index does not have yet.
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

// addJoint adds the values of a joint key. If the index has maxJoint joint keys already, addJoint removes the oldest.
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

// newGlob prepares a pattern with the wildcards of path.Match.
func newGlob(pattern string) glob {
	g := glob{pattern: pattern}
	if strings.ContainsAny(pattern, `[\`) { // the pattern's pieces are not literal texts, so prefix and infix stay empty
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

// matches reports whether the whole value matches the pattern.
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

// eachValue calls handle for each key for which a subject has a value. The parameter indexes of handle is the map of
// the index that has this key: x.labels for labels, and x.keys for all other keys.
func (x *Index) eachValue(s Subject, handle func(indexes map[string]*valueIndex, key, value string)) {
	for _, key := range [...]string{"name", "namespace", "qosclass", "pod/name", "pod/uid", "pod/id"} {
		if value, ok := s.resolve(key); ok {
			handle(x.keys, key, value)
		}
	}
	for _, key := range x.joint {
		if value, ok := s.value(key); ok {
			handle(x.keys, key, value)
		}
	}
	if s.Pod == nil {
		return
	}
	for label, value := range s.Pod.Labels {
		if isShortEnough(value) {
			handle(x.labels, label, value)
		}
	}
}

// equals reports whether two subjects have the same values of all keys.
func (s Subject) equals(o Subject) bool {
	a, b := s.Pod, o.Pod
	return s.Name == o.Name && s.QoS == o.QoS && (a == b || a != nil && b != nil &&
		a.Name == b.Name && a.UID == b.UID && a.ID == b.ID && a.Namespace == b.Namespace && maps.Equal(a.Labels, b.Labels))
}
