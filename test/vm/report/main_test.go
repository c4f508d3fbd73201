package main

import (
	"strings"
	"testing"
	"time"
)

const events = `{"Action":"run","Package":"x/test/vm/hooks","Test":"TestA"}
{"Action":"run","Package":"x/test/vm/hooks","Test":"TestA/v2"}
{"Action":"pass","Package":"x/test/vm/hooks","Test":"TestA/v2","Elapsed":2}
{"Action":"run","Package":"x/test/vm/hooks","Test":"TestA/v1"}
{"Action":"output","Package":"x/test/vm/hooks","Test":"TestA/v1","Output":"    a_test.go:9: needs a file: cpu.x\n"}
{"Action":"output","Package":"x/test/vm/hooks","Test":"TestA/v1","Output":"vm: n1: restored\n"}
{"Action":"output","Package":"x/test/vm/hooks","Test":"TestA/v1","Output":"--- SKIP: TestA/v1\n"}
{"Action":"skip","Package":"x/test/vm/hooks","Test":"TestA/v1"}
{"Action":"pass","Package":"x/test/vm/hooks","Test":"TestA"}
{"Action":"pass","Package":"x/test/vm/hooks","Elapsed":3}
`

func TestSummary(t *testing.T) {
	for name, c := range map[string]struct {
		events string
		good   bool
		want   []string
	}{
		"a skip is told with its reason": {events, true, []string{"suite hooks", "1 passed, 0 failed, 1 skipped", "skipped 1: needs a file: cpu.x\n      TestA/v1\n", "make e2e: passed"}},
		"nothing at all is a failure":    {"", false, []string{"make e2e: FAILED"}},
		"a test without an end failed":   {strings.Join(strings.Split(events, "\n")[:4], "\n"), false, []string{"FAILED  TestA/v1", "make e2e: FAILED"}},
		"a failure's last words stand in the table": {`{"Action":"run","Package":"x/hooks","Test":"TestA/v1"}
{"Action":"output","Package":"x/hooks","Test":"TestA/v1","Output":"    a_test.go:9: weight is 5\n"}
{"Action":"fail","Package":"x/hooks","Test":"TestA/v1"}
{"Action":"fail","Package":"x/hooks"}`, false, []string{"   FAILED  TestA/v1\n       a_test.go:9: weight is 5\n"}},
		"a suite that did not build": {`{"Action":"build-output","ImportPath":"x","Output":"x.go:1: no\n"}
{"Action":"fail","Package":"x/hooks","Elapsed":0}`, false, []string{"x.go:1: no", "make e2e: FAILED"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			suites, err := read(strings.NewReader(c.events), &out)
			if err != nil {
				t.Fatal(err)
			}
			if good := summarise(&out, suites, time.Second); good != c.good {
				t.Errorf("good is %v", good)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
		})
	}
}
