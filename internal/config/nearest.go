package config

import "strings"

// nearest returns the candidate with the smallest edit distance to word, and
// that distance. Letter case costs nothing: it is the most common slip.
func nearest(word string, candidates []string) (string, int) {
	best, least := "", -1
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); least < 0 || d < least {
			best, least = c, d
		}
	}
	return best, least
}

// distance is the number of single-letter insertions, deletions, replacements
// and swaps of neighbours that turn a into b.
func distance(a, b string) int {
	// No key is this long. The bound limits the work for long unknown keys.
	const most = 64
	a, b = a[:min(len(a), most)], b[:min(len(b), most)]
	var rows [3][]int // the row before last, the last, the current one
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
	}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row := rows[0], rows[1], rows[2]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		rows[0], rows[1], rows[2] = last, row, before
	}
	return rows[1][len(b)]
}

// suggest returns the valid key that is nearest to an unknown one. A key that is
// unlike its would-be siblings but valid elsewhere was put in the wrong place.
func suggest(parent, key string, siblings []string) string {
	near, d := nearest(key, siblings)
	switch {
	case d == 0:
		return "keys are case-sensitive; nearest valid key " + quoteShort(join(parent, near))
	case d > max(2, len(key)/3):
		for _, k := range Keys() {
			if strings.EqualFold(k.Path[strings.LastIndexByte(k.Path, '.')+1:], key) {
				return "nearest valid key " + quoteShort(k.Path)
			}
		}
	}
	return "nearest valid key " + quoteShort(join(parent, near))
}

func join(parent, key string) string {
	if parent == "" {
		return key
	}
	return parent + "." + key
}
