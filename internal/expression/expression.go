package expression

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Expression is a condition over a container.
type Expression struct {
	// Key is one of Keys, or pod/labels/NAME, or a joint key: several of these keys, such as ":pod/namespace:name".
	Key string `json:"key"`
	// Operator compares the key's value with Values.
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// Operators returns the valid operators.
func Operators() []string {
	return []string{"Equals", "NotEqual", "In", "NotIn", "Exists", "NotExists", "AlwaysTrue", "Matches", "MatchesNot", "MatchesAny", "MatchesNone"}
}

// Subject has the properties of a container that expressions can compare.
type Subject struct {
	Pod  *lifecycle.Pod
	QoS  string // the QoS class of Pod
	Name string
}

// labelsPrefix begins the keys of a pod's labels.
const labelsPrefix = "pod/labels/"

// isShortEnough reports whether the value of a label is short enough for comparisons.
func isShortEnough(value string) bool { return len(value) <= lifecycle.MaxValueBytes }

// resolve returns the value of a key that is not joint. The result ok is false if the container has no value for the
// key.
func (s Subject) resolve(key string) (value string, ok bool) {
	if label, is := strings.CutPrefix(key, labelsPrefix); is {
		if s.Pod == nil {
			return "", false
		}
		value, ok = s.Pod.Labels[label]
		return value, ok && isShortEnough(value)
	}
	if s.Pod == nil {
		return "", false
	}
	switch key {
	case "name":
		return s.Name, s.Name != ""
	case "namespace", "pod/namespace":
		return s.Pod.Namespace, true
	case "qosclass", "pod/qosclass":
		return s.QoS, true
	case "pod/name":
		return s.Pod.Name, true
	case "pod/uid":
		return s.Pod.UID, true
	case "pod/id":
		return s.Pod.ID, true
	}
	return "", false
}

// Keys returns all valid keys except pod/labels/NAME and joint keys.
func Keys() []string {
	return []string{"name", "namespace", "qosclass", "pod/name", "pod/namespace", "pod/qosclass", "pod/uid", "pod/id"}
}

// IsKey reports whether a key is valid and not joint.
func IsKey(key string) bool {
	label, is := strings.CutPrefix(key, labelsPrefix)
	return is && label != "" || slices.Contains(Keys(), key)
}

// splitJoint splits a joint key into its keys. It also returns the separator between the values of these keys. In a
// joint key such as ":pod/namespace:name", the separator of the keys is ":", and the separator of the values is also
// ":". In a joint key such as ":;-name;namespace", the two characters after the first ":" are the separators: ";" of
// the keys, and "-" of the values. If the key is not joint, splitJoint returns only this key.
func splitJoint(key string) (parts []string, valueSeparator string) {
	rest, is := strings.CutPrefix(key, ":")
	if !is {
		return []string{key}, ""
	}
	keySeparator := ":"
	valueSeparator = ":"
	if r := []rune(rest); len(r) > 2 && isSeparator(r[0]) && isSeparator(r[1]) {
		keySeparator, valueSeparator, rest = string(r[0]), string(r[1]), string(r[2:])
	}
	return strings.Split(rest, keySeparator), valueSeparator
}

// isSeparator reports whether a joint key can use a character as a separator: visible ASCII, but no letter or digit.
func isSeparator(r rune) bool { return r > ' ' && r < 0x7f && !isAlphanumeric(r) }

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// value returns the value of a key, which may be joint. A joint key has a value if one of its
// keys has a value.
func (s Subject) value(key string) (value string, ok bool) {
	if !strings.HasPrefix(key, ":") {
		return s.resolve(key)
	}
	parts, separator := splitJoint(key)
	values := make([]string, len(parts))
	for i, p := range parts {
		v, has := s.resolve(p)
		values[i], ok = v, ok || has
	}
	return strings.Join(values, separator), ok
}

// Matches reports whether an expression holds for a container. If the container has no value for the key, only
// AlwaysTrue and the operators with Not or None in their names hold. For Equals, In and NotIn, "*" equals every value.
func (e *Expression) Matches(s Subject) bool {
	value, ok := s.value(e.Key)
	glob := func(p string) bool { is, err := path.Match(p, value); return ok && is && err == nil }
	equal := func(v string) bool { return ok && (v == value || v == "*") }
	switch e.Operator {
	case "Equals", "In":
		return slices.ContainsFunc(e.Values, equal)
	case "NotEqual":
		return !ok || !slices.Contains(e.Values, value)
	case "NotIn":
		return !slices.ContainsFunc(e.Values, equal)
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

// Fault returns the first JSON key of an expression whose value is wrong, and what is wrong with the value. Both
// results are "" if the expression is valid. Fault does not check that the operator is one of Operators.
func (e *Expression) Fault() (key, what string) {
	parts, _ := splitJoint(e.Key)
	if e.Operator != "AlwaysTrue" {
		for _, p := range parts {
			if !IsKey(p) {
				return "key", "has the key " + Quote(p) + ", want pod/labels/KEY, " + strings.Join(Keys(), ", ")
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
				return "values", "is " + Quote(v) + ", a pattern with a [ without ]"
			}
		}
	}
	return "", ""
}

// Expand replaces ${KEY} and $KEY in a template by the values of the keys. The result ok is false if a key has no
// value.
func (s Subject) Expand(template string) (text string, ok bool) {
	var b strings.Builder
	ok = true
	for template != "" {
		before, rest, more := strings.Cut(template, "$")
		b.WriteString(before)
		if !more {
			break
		}
		var key string
		key, template = CutKey(rest)
		v, has := s.resolve(key)
		ok = ok && has
		b.WriteString(v)
	}
	return b.String(), ok
}

// CutKey returns the key at the start of a text, and the text after the key. The key is in braces, or ends before the
// first character that keys cannot have.
func CutKey(rest string) (key, after string) {
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

// Quote returns a text in quotes, for messages. It cuts off a text after 60 bytes.
func Quote(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return strconv.Quote(s)
}
