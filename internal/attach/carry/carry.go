// Package carry has functions that put decided values into messages to runtimes. It works with any type of message: the
// caller passes a function that sets the field.
package carry

import (
	"maps"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// NumberSetter returns a function that sets a number. The function returns false for a number below least, and for 0,
// which means unset.
func NumberSetter[M any](least int64, set func(m *M, n int64)) func(*M, lifecycle.Value) bool {
	return func(m *M, v lifecycle.Value) bool {
		if v.Int == 0 || v.Int < least {
			return false
		}
		set(m, v.Int)
		return true
	}
}

// TextSetter returns a function that sets a string. The function returns false for an empty string, because that means
// unset, or would clear the field.
func TextSetter[M any](set func(m *M, text string)) func(*M, lifecycle.Value) bool {
	return func(m *M, v lifecycle.Value) bool {
		if v.Text != "" {
			set(m, v.Text)
		}
		return v.Text != ""
	}
}

// SetPair puts a value into m under its key. It returns false for a value without a key.
func SetPair(m *map[string]string, v lifecycle.Value) bool {
	if v.Key != "" {
		*m = MergePairs(*m, map[string]string{v.Key: v.Text})
	}
	return v.Key != ""
}

// MergePairs merges pairs into m, which may be nil.
func MergePairs(m, more map[string]string) map[string]string {
	if m == nil && len(more) > 0 {
		m = make(map[string]string, len(more))
	}
	maps.Copy(m, more)
	return m
}
