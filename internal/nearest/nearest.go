// Package nearest finds what a user meant by a misspelt word: the key, flag or command with the smallest edit
// distance.
package nearest

import "strings"

// Word returns the candidate with the smallest edit distance to word, and the distance. It ignores the case of
// letters, because a wrong case is the most common mistake. If there are no candidates, the distance is -1.
func Word(word string, candidates []string) (string, int) {
	best, least := "", -1
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); least < 0 || d < least {
			best, least = c, d
		}
	}
	return best, least
}

// distance returns the smallest number of changes that turn a into b. A change inserts, deletes or replaces one byte,
// or swaps two neighbouring bytes. Swapped bytes are not changed again. Only the first 64 bytes of a word count.
func distance(a, b string) int {
	// No candidate is this long. The limit bounds the work for long misspelt words.
	const most = 64
	a, b = a[:min(len(a), most)], b[:min(len(b), most)]
	var rows [3][]int // the row before the last one, the last one, the current one
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
