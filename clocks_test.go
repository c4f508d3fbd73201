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

// wallClock lists the places that use a time without its monotonic reading, with the reason why no wait or
// measurement depends on it.
var wallClock = map[string]string{
	"internal/report/metrics/state.go UnixMilli": "Prometheus wants the time of day of the last Synchronize",
	"internal/agent/attach.go UTC":               "the time of day since when an attachment is in force, for display",
	"internal/report/status/svg.go UTC":          "the time of day of a drawing, for display",
	"internal/kube/publish/publish.go UTC":       "the time of day an object was written, for display",
	"cmd/kubectl-trimtab/events.go Local":        "the time of day of events, for display",
	"cmd/trimtab-oci/main.go UTC":                "the time of day of a line in the log of an OCI runtime",
	"internal/kube/token.go Unix":                "when a token is valid, by the API server's clock",
	"internal/kube/clock.go UTC":                 "the time of day in objects of the API server, for display",
	"internal/nodelock/holder.go UTC":            "the time of day an agent was started, for display",
	"internal/agent/cdi.go ModTime":              "whether a CDI specification has changed: the times are only compared for equality",
	"internal/attach/nri/socket.go ModTime":      "whether a socket is another file than before: the times are only compared for equality",

	"internal/extend/nrihost/message.go GetCreatedAt":    "the runtime's creation time, handed on to plugins",
	"internal/attach/criclient/describe.go GetCreatedAt": "the runtime's creation time, which only orders adoption",
}

// strips lists the functions that make a time without a monotonic reading, or remove the reading.
var strips = map[string]bool{
	"Unix": true, "UnixNano": true, "UnixMicro": true, "UnixMilli": true, "UTC": true, "Local": true,
	"ModTime": true, "GetCreatedAt": true, "GetTimestamp": true,
}

// TestMonotonic finds code that a step of the wall clock could break. Durations and deadlines must use time.Now with
// Sub, Since, Until, Before and After. A time from a number, a file or another process has no monotonic reading.
func TestMonotonic(t *testing.T) {
	used := map[string]bool{}
	for _, root := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (file == "internal/sim" || file == "internal/tools"):
				return filepath.SkipDir // test kits and build tools
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
			t.Errorf("wallClock has %s, which no longer exists", site)
		}
	}
}

// stripped returns the calls in a file that lose the monotonic reading, by place.
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

// isZero reports whether the only argument of a call is 0.
func isZero(call *ast.CallExpr) bool {
	if len(call.Args) != 1 {
		return false
	}
	number, is := call.Args[0].(*ast.BasicLit)
	return is && number.Value == "0"
}
