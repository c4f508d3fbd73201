package trimtab_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// wallClock are the places that use a time without its monotonic reading, and why
// nothing is waited for or measured by it.
var wallClock = map[string]string{
	"internal/report/metrics/state.go UnixMilli": "Prometheus wants the time of day of the last Synchronize",
	"internal/agent/attach.go UTC":               "the time of day since when an attachment is in force, for people",
	"internal/report/status/svg.go UTC":          "the time of day of a drawing, for people",
	"internal/kube/publish/publish.go UTC":       "the time of day an object was written, for people",
	"cmd/kubectl-trimtab/events.go Local":        "the time of day of events, for people",
	"internal/kube/token.go Unix":                "when a token is valid, by the API server's clock",
	"internal/kube/clock.go UTC":                 "the time of day in objects of the API server, for people",
	"internal/nodelock/holder.go UTC":            "the time of day an agent was started, for people",
	"internal/attach/nri/socket.go ModTime":      "whether a socket is another file than before: the times are only told apart",

	"internal/attach/criclient/describe.go GetCreatedAt": "the runtime's own word, by which nothing is measured: who is adopted first",
}

// strips are the functions that make a time without a monotonic reading, or take it
// from one.
var strips = map[string]bool{
	"Unix": true, "UnixNano": true, "UnixMicro": true, "UnixMilli": true, "UTC": true, "Local": true,
	"ModTime": true, "GetCreatedAt": true, "GetTimestamp": true,
}

// TestMonotonic finds times that a step of the wall clock would change. What is
// measured or waited for goes by time.Now and Sub, Since, Until, Before and After of
// its readings; a time that was a number, came from a file or from another process is
// none of those.
func TestMonotonic(t *testing.T) {
	used := map[string]bool{}
	for _, root := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (file == "internal/sim" || file == "internal/tools"):
				return filepath.SkipDir // test kits and tools of the build
			case d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
				return nil
			}
			for where, name := range stripped(t, file) {
				site := file + " " + name
				if used[site] = true; wallClock[site] == "" {
					t.Errorf("%s: %s loses the monotonic clock: measure by readings of time.Now, or give the reason in wallClock", where, name)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for site := range wallClock {
		if !used[site] {
			t.Errorf("wallClock excuses %s, which is no more", site)
		}
	}
}

// stripped returns the calls in a file that lose the monotonic clock, by place.
func stripped(t *testing.T, file string) map[string]string {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		f, is := call.Fun.(*ast.SelectorExpr)
		if is && (strips[f.Sel.Name] || f.Sel.Name == "Round" && isZero(call)) {
			found[set.Position(call.Pos()).String()] = f.Sel.Name
		}
		return true
	})
	return found
}

// isZero reports whether a call's one argument is the number 0.
func isZero(call *ast.CallExpr) bool {
	if len(call.Args) != 1 {
		return false
	}
	number, is := call.Args[0].(*ast.BasicLit)
	return is && number.Value == "0"
}
