package engine

import (
	"fmt"
	"os"
	"regexp"
	"testing"
)

// tableRows says what plays each row of the tables of nri-plugins' end-to-end tests: a file in
// which the row is named. A row with a reason is played otherwise, or not: docs/ says so in these
// words.
var tableRows = map[string]struct{ file, differs string }{
	"B1": {file: balloonsScenario}, "B2": {file: balloonsScenario}, "B3": {file: balloonsScenario}, "B4": {file: balloonsScenario},
	"B5": {file: balloonsScenario}, "B6": {file: balloonsScenario}, "B7": {file: balloonsScenario}, "B8": {file: "balloontables_test.go"},
	"B9": {file: sizesScenario}, "B10": {file: sizesScenario}, "B11": {file: sizesScenario}, "B12": {file: sizesScenario}, "B13": {file: sizesScenario},
	"B14": {file: "balloontables_test.go"}, "B15": {file: "balloontables_test.go"}, "B16": {file: "balloontables_test.go"}, "B17": {file: "balloontables_test.go"},
	"B18": {file: "balloontables_test.go"}, "B19": {file: sizesScenario}, "B20": {file: sizesScenario, differs: "in the balloon of type `default`, and reported"},
	"B21": {file: sizesScenario, differs: "in the balloon of type `default`, and reported"},
	"B22": {file: "../placement/balloons/expression_test.go"}, "B23": {file: "balloontables_test.go"}, "B24": {file: "balloontables_test.go"},

	"A1": {file: treeScenario}, "A2": {file: treeTables}, "A3": {file: treeScenario}, "A4": {file: treeTables}, "A5": {file: treeTables}, "A6": {file: treeTables},
	"A7": {file: treeScenario}, "A8": {file: treeScenario}, "A9": {file: treeScenario}, "A10": {file: treeScenario, differs: "Four CPUs of two nodes are as many"},
	"A11": {file: treeScenario}, "A12": {file: treeScenario}, "A13": {file: treeScenario}, "A14": {file: treeScenario}, "A15": {file: treeScenario}, "A16": {file: treeScenario},
	"A17": {differs: "A request for one whole CPU and a fraction (1500m) shares CPUs."},
	"A18": {differs: "A request for one whole CPU and a fraction (1500m) shares CPUs."},
	"A19": {differs: "A request for one whole CPU and a fraction (1500m) shares CPUs."},
	"A20": {differs: "A request for one whole CPU and a fraction (1500m) shares CPUs."},
	"A21": {file: treeTables}, "A22": {file: treeTables}, "A23": {file: treeScenario}, "A24": {file: treeScenario}, "A25": {file: treeScenario},
	"A26": {file: treeTables}, "A27": {file: treeTables}, "A28": {file: treeTables}, "A29": {file: treeTables}, "A30": {file: treeTables}, "A31": {file: treeTables},
}

const (
	balloonsScenario = "../../test/scenarios/balloons.yaml"
	sizesScenario    = "../../test/scenarios/balloons-size.yaml"
	treeScenario     = "../../test/scenarios/topology-aware.yaml"
	treeTables       = "topologyawaretables_test.go"
)

// TestTableRows: each row is played by what tableRows says, and each deliberate difference is in
// the documentation.
func TestTableRows(t *testing.T) {
	t.Parallel()
	docs := ""
	for _, page := range []string{"../../docs/balloons.md", "../../docs/topology-aware.md"} {
		docs += read(t, page)
	}
	for table, n := range map[string]int{"A": 31, "B": 24} {
		for i := 1; i <= n; i++ {
			row := fmt.Sprint(table, i)
			by, known := tableRows[row]
			if !known || by.file == "" && by.differs == "" {
				t.Errorf("nothing plays row %s", row)
			}
			if by.file != "" && !regexp.MustCompile(`\b`+row+`\b`).MatchString(read(t, by.file)) {
				t.Errorf("%s does not name row %s", by.file, row)
			}
			if by.differs != "" && !regexp.MustCompile(regexp.QuoteMeta(by.differs)).MatchString(regexp.MustCompile(`\s+`).ReplaceAllString(docs, " ")) {
				t.Errorf("no page says how row %s differs: %q", row, by.differs)
			}
		}
	}
	if len(tableRows) != 55 {
		t.Errorf("%d rows, want 55", len(tableRows))
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
