package balloons

import (
	"path"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Subject has the properties of a container that expressions can compare.
type Subject struct {
	Pod  *lifecycle.Pod
	QoS  intent.QoS
	Name string
}

// resolve returns the value of a key; ok is false if the container has none.
func (s Subject) resolve(key string) (value string, ok bool) {
	if label, is := strings.CutPrefix(key, "pod/labels/"); is {
		return intent.LabelOf(s.Pod, label)
	}
	if !isKey(key) || s.Pod == nil {
		return "", false
	}
	switch key {
	case "name":
		return s.Name, s.Name != ""
	case "namespace", "pod/namespace":
		return s.Pod.Namespace, true
	case "qosclass", "pod/qosclass":
		return s.QoS.String(), true
	case "pod/name":
		return s.Pod.Name, true
	case "pod/uid":
		return s.Pod.UID, true
	}
	return s.Pod.ID, true
}

// keys are the keys without labels.
func keys() []string {
	return []string{"name", "namespace", "qosclass", "pod/name", "pod/namespace", "pod/qosclass", "pod/uid", "pod/id"}
}

func isKey(key string) bool {
	label, is := strings.CutPrefix(key, "pod/labels/")
	return is && label != "" || slices.Contains(keys(), key)
}

// joint splits a joint key, such as ":pod/namespace:name", into its keys. by is the separator
// between their values. A key that is not joint gives a list with only itself.
func joint(key string) (parts []string, by string) {
	rest, is := strings.CutPrefix(key, ":")
	if !is {
		return []string{key}, ""
	}
	between := ":"
	by = ":"
	if r := []rune(rest); len(r) > 2 && isSeparator(r[0]) && isSeparator(r[1]) {
		between, by, rest = string(r[0]), string(r[1]), string(r[2:])
	}
	return strings.Split(rest, between), by
}

func isSeparator(r rune) bool { return r > ' ' && r < 0x7f && !isAlphanumeric(r) }

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// value returns the value of a key, which may be joint. A joint key has a value if one of its
// keys has.
func (s Subject) value(key string) (value string, ok bool) {
	parts, by := joint(key)
	values := make([]string, len(parts))
	for i, p := range parts {
		v, has := s.resolve(p)
		values[i], ok = v, ok || has
	}
	return strings.Join(values, by), ok
}

// matches reports whether an expression holds for a container. Without a value only negations
// hold.
func (e *ExpressionOptions) matches(s Subject) bool {
	value, ok := s.value(e.Key)
	glob := func(p string) bool { is, err := path.Match(p, value); return ok && is && err == nil }
	equal := func(v string) bool { return ok && (v == value || v == "*") }
	switch e.Operator {
	case "Equals":
		return slices.ContainsFunc(e.Values, equal)
	case "NotEqual":
		return !slices.ContainsFunc(e.Values, equal)
	case "In":
		return ok && slices.Contains(e.Values, value)
	case "NotIn":
		return !ok || !slices.Contains(e.Values, value)
	case "Exists":
		return ok
	case "NotExists":
		return !ok
	case "AlwaysTrue":
		return true
	case "Matches", "MatchesAny":
		return slices.ContainsFunc(e.Values, glob)
	case "MatchesNot", "MatchesNone":
		return !slices.ContainsFunc(e.Values, glob)
	}
	return false
}

// wrong returns the fault of an expression and the key with the fault; "" if the expression is
// valid.
func (e *ExpressionOptions) wrong() (key, what string) {
	parts, _ := joint(e.Key)
	if e.Operator != "AlwaysTrue" {
		for _, p := range parts {
			if !isKey(p) {
				return "key", "has the key " + quote(p) + ", want pod/labels/KEY, " + strings.Join(keys(), ", ")
			}
		}
	}
	switch e.Operator {
	case "Equals", "NotEqual", "Matches", "MatchesNot":
		if len(e.Values) != 1 {
			return "values", e.Operator + " needs exactly one value"
		}
	case "Exists", "NotExists", "AlwaysTrue":
		if len(e.Values) > 0 {
			return "values", e.Operator + " takes no value"
		}
	default:
		if len(e.Values) == 0 {
			return "values", e.Operator + " needs a value"
		}
	}
	if strings.HasPrefix(e.Operator, "Match") {
		for _, v := range e.Values {
			if _, err := path.Match(v, ""); err != nil {
				return "values", "is " + quote(v) + ", a pattern with a [ without ]"
			}
		}
	}
	return "", ""
}

// expand replaces ${KEY} and $KEY in a template by the values of keys; ok is false if a key has
// no value.
func (s Subject) expand(template string) (text string, ok bool) {
	var b strings.Builder
	ok = true
	for template != "" {
		before, rest, more := strings.Cut(template, "$")
		b.WriteString(before)
		if !more {
			break
		}
		var key string
		key, template = cutKey(rest)
		v, has := s.resolve(key)
		ok = ok && has
		b.WriteString(v)
	}
	return b.String(), ok
}

// cutKey cuts a key from the start of a text: a key in braces, or as many letters as keys can
// have.
func cutKey(rest string) (key, after string) {
	if braced, is := strings.CutPrefix(rest, "{"); is {
		key, after, _ = strings.Cut(braced, "}")
		return key, after
	}
	end := strings.IndexFunc(rest, func(r rune) bool {
		return !isAlphanumeric(r) && !strings.ContainsRune("/_-.", r)
	})
	if end < 0 {
		end = len(rest)
	}
	return rest[:end], rest[end:]
}
