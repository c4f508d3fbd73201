// Package carry has functions that put the agent's values into messages to runtimes. The functions work with any type
// of message: the caller passes a function that sets the message's field.
package carry

import (
	"maps"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// NumberSetter returns a function that calls set with the number of a value, and returns true. If the number is 0,
// which means unset, or less than minimum, the returned function does not call set, and returns false.
func NumberSetter[M any](minimum int64, set func(m *M, n int64)) func(*M, lifecycle.Value) bool {
	return func(m *M, v lifecycle.Value) bool {
		if v.Int == 0 || v.Int < minimum {
			return false
		}
		set(m, v.Int)
		return true
	}
}

// TextSetter returns a function that calls set with the text of a value, and returns true. If the text is empty, the
// returned function does not call set, and returns false: runtimes treat an empty string as unset, or clear the field.
func TextSetter[M any](set func(m *M, text string)) func(*M, lifecycle.Value) bool {
	return func(m *M, v lifecycle.Value) bool {
		if v.Text != "" {
			set(m, v.Text)
		}
		return v.Text != ""
	}
}

// SetPair stores v.Text in the map m under the key v.Key, and returns true. If v has no key, SetPair does nothing and
// returns false.
func SetPair(m *map[string]string, v lifecycle.Value) bool {
	if v.Key != "" {
		*m = MergePairs(*m, map[string]string{v.Key: v.Text})
	}
	return v.Key != ""
}

// MergePairs copies the entries of more into the map m, and returns the map. If m is nil and more is not empty,
// MergePairs makes a new map.
func MergePairs(m, more map[string]string) map[string]string {
	if m == nil && len(more) > 0 {
		m = make(map[string]string, len(more))
	}
	maps.Copy(m, more)
	return m
}
