package class

import (
	"fmt"
	"strconv"
	"strings"
)

// Problem is a problem in the options of a policy. Path is a configuration key, relative to the policy's
// key. Text says what is wrong with the value of this key, as a predicate such as "is empty".
type Problem struct{ Path, Text string }

// CheckNames returns the names of the n entries of a list, and a problem for each entry that has no name or
// the name of an earlier entry. list is the configuration key of the list.
func CheckNames(n int, list string, name func(i int) string) (known map[string]bool, wrong []Problem) {
	known = map[string]bool{}
	first := map[string]int{} // the index of the first entry with a name
	for i := range n {
		switch at := fmt.Sprintf("%s[%d].name", list, i); {
		case name(i) == "":
			wrong = append(wrong, Problem{at, "is empty: give the class a name"})
		case known[name(i)]:
			wrong = append(wrong, Problem{at, fmt.Sprintf("%s is also the name of %s[%d]: give each class its own name", Quote(name(i)), list, first[name(i)])})
		default:
			first[name(i)] = i
		}
		known[name(i)] = true
	}
	return known, wrong
}

// Quote quotes a string of the configuration. It shortens a string of more than 60 bytes to its first 60 bytes.
func Quote(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return strconv.Quote(s)
}
