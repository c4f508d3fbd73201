package config

import (
	"strings"

	"github.com/trimtab/trimtab/internal/nearest"
)

// suggestKey returns a text with the valid key that is nearest to an unknown key of the section parent. If the unknown
// key is unlike all keys of this section but valid in another section, the text has the path in the other section.
func suggestKey(parent, key string, siblings []string) string {
	near, d := nearest.Word(key, siblings)
	switch {
	case d == 0:
		return "keys are case-sensitive; nearest valid key " + quoteShort(joinPath(parent, near))
	case d > max(2, len(key)/3):
		for _, k := range Keys() {
			if strings.EqualFold(k.Path[strings.LastIndexByte(k.Path, '.')+1:], key) {
				return "nearest valid key " + quoteShort(k.Path)
			}
		}
	}
	return "nearest valid key " + quoteShort(joinPath(parent, near))
}

// joinPath returns the path of a key of the section parent.
func joinPath(parent, key string) string {
	if parent == "" {
		return key
	}
	return parent + "." + key
}
