package choose

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumented: docs/choosing.md lists the criteria in the order in which they decide.
func TestDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/choosing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "## How CPUs are chosen")
	section, _, _ := strings.Cut(after, "### What is preferred")
	var lists [][]string
	for _, item := range regexp.MustCompile(`(?m)^(\d+)\. (.*)$`).FindAllStringSubmatch(section, -1) {
		if item[1] == "1" {
			lists = append(lists, nil)
		}
		lists[len(lists)-1] = append(lists[len(lists)-1], item[2])
	}
	if len(lists) != 2 {
		t.Fatalf("%d lists of criteria, want that of CPUs and that of NUMA nodes", len(lists))
	}
	nodes := append(nodeCriteria[:], fmt.Sprintf("criteria %d to %d of the list above, for the CPUs that would be chosen there", fewestKinds+1, len(criteria)), (&nodeSearch{}).ruleName(lowestNodes))
	for i, want := range [][]string{criteria[:], nodes} {
		if len(lists[i]) != len(want) {
			t.Fatalf("list %d has %d criteria, want %d", i+1, len(lists[i]), len(want))
		}
		for j, item := range lists[i] {
			if !strings.HasPrefix(item, want[j]) {
				t.Errorf("list %d, criterion %d is %q; what decides is %q", i+1, j+1, item, want[j])
			}
		}
	}
}
