package scenarios

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// tableRows says what plays each row of the tables of nri-plugins' end-to-end tests (test/e2e/policies.test-suite): A of
// its policy topology-aware, B of balloons. file names the row. A row that has differs is played with another result, and
// docs say so in these words.
var tableRows = []struct{ row, file, differs string }{
	{"A1", "topology-aware.yaml", ""},
	{"A2", "topology-aware-prefers.yaml", ""},
	{"A3", "topology-aware.yaml", ""},
	{"A4", "topology-aware-init.yaml", ""},
	{"A5", "topology-aware-prefers.yaml", ""},
	{"A6", "topology-aware-prefers.yaml", ""},
	{"A7", "topology-aware.yaml", ""},
	{"A8", "topology-aware.yaml", ""},
	{"A9", "topology-aware.yaml", ""},
	{"A10", "topology-aware.yaml", "If four CPUs must come from two NUMA nodes"},
	{"A11", "topology-aware.yaml", ""},
	{"A12", "topology-aware.yaml", ""},
	{"A13", "topology-aware.yaml", ""},
	{"A14", "topology-aware.yaml", ""},
	{"A15", "topology-aware.yaml", ""},
	{"A16", "topology-aware.yaml", ""},
	{"A17", "topology-aware-mixed.yaml", ""},
	{"A18", "topology-aware-mixed.yaml", ""},
	{"A19", "topology-aware-mixed.yaml", ""},
	{"A20", "topology-aware-mixed.yaml", ""},
	{"A21", "topology-aware-mixed.yaml", ""},
	{"A22", "topology-aware-prefers.yaml", ""},
	{"A23", "topology-aware.yaml", ""},
	{"A24", "topology-aware.yaml", ""},
	{"A25", "topology-aware.yaml", ""},
	{"A26", "topology-aware-prefers.yaml", ""},
	{"A27", "topology-aware.yaml", ""},
	{"A28", "topology-aware-near.yaml", ""},
	{"A29", "topology-aware-near.yaml", ""},
	{"A30", "topology-aware-without-numa.yaml", ""},
	{"A31", "topology-aware-sparse.yaml", ""},
	{"B1", "balloons.yaml", ""},
	{"B2", "balloons.yaml", ""},
	{"B3", "balloons.yaml", ""},
	{"B4", "balloons.yaml", ""},
	{"B5", "balloons-annotations.yaml", ""},
	{"B6", "balloons.yaml", ""},
	{"B7", "balloons.yaml", ""},
	{"B8", "balloons-full.yaml", ""},
	{"B9", "balloons-size.yaml", ""},
	{"B10", "balloons-size.yaml", ""},
	{"B11", "balloons-size.yaml", ""},
	{"B12", "balloons-size.yaml", ""},
	{"B13", "balloons-size.yaml", ""},
	{"B14", "balloons-instances.yaml", ""},
	{"B15", "balloons-instances.yaml", ""},
	{"B16", "balloons-instances.yaml", ""},
	{"B17", "balloons-instances.yaml", ""},
	{"B18", "balloons-instances.yaml", ""},
	{"B19", "balloons-size.yaml", ""},
	{"B20", "balloons-size.yaml", "the container is created in the balloon of type `default`, and the agent reports this"},
	{"B21", "balloons-size.yaml", "the container is created in the balloon of type `default`, and the agent reports this"},
	{"B22", "../../internal/placement/balloons/expression_test.go", ""},
	{"B23", "balloons-size.yaml", ""},
	{"B24", "balloons-instances.yaml", ""},
}

// TestTableRows: every row is played, and each deliberate difference is in the documentation.
func TestTableRows(t *testing.T) {
	t.Parallel()
	docs := strings.Join(strings.Fields(read(t, "../../docs/balloons.md")+read(t, "../../docs/topology-aware.md")), " ")
	played := map[string]bool{}
	for _, by := range tableRows {
		played[by.row] = true
		if !regexp.MustCompile(`\b` + by.row + `\b`).MatchString(read(t, by.file)) {
			t.Errorf("%s does not name row %s", by.file, by.row)
		}
		if !strings.Contains(docs, by.differs) {
			t.Errorf("no page says how row %s differs: %q", by.row, by.differs)
		}
	}
	for table, n := range map[string]int{"A": 31, "B": 24} {
		for i := range n {
			if row := fmt.Sprint(table, i+1); !played[row] {
				t.Errorf("nothing plays row %s", row)
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
