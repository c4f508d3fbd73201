package pages

import (
	"cmp"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

var update = flag.Bool("update", false, "write into the pages what their commands print")

// files returns README.md and all pages below docs.
func files(t *testing.T) []string {
	t.Helper()
	list := []string{"README.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			rel, _ := filepath.Rel(root, path)
			list = append(list, rel)
		}
		return err
	})
	if err != nil || len(list) < 30 {
		t.Fatalf("found %d pages: %v", len(list), err)
	}
	return list
}

// TestPages runs every command of every page, and compares the output with the page. Commands that it does
// not run name the test that runs them.
func TestPages(t *testing.T) {
	t.Parallel()
	bin := build(t)
	for _, file := range files(t) {
		p, err := Read(root, file)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			p.follow(t, bin)
		})
	}
}

// manual lists the pages with commands that no test runs, with the reason.
var manual = map[string]string{
	"docs/authorization.md":          "scp and ssh to a node from an administrator's machine",
	"docs/benchmarks.md":             "benchmarks assert nothing, and take minutes",
	"docs/benchmarks-attachments.md": "benchmarks assert nothing, and take minutes",
	"docs/benchmarks-cluster.md":     "benchmarks assert nothing, and take minutes",
	"docs/benchmarks-placement.md":   "benchmarks assert nothing, and take minutes",
	"docs/debugging.md":              "go test with a seed that a failed test has printed",
	"docs/extending.md":              "rewrites the golden files of this checkout",
	"docs/packages.md":               "needs the Go toolchain on the sources of this checkout",
	"docs/testing.md":                "records a real runtime until interrupted",
}

// TestManual: manual lists exactly the pages with such commands.
func TestManual(t *testing.T) {
	for _, file := range files(t) {
		p, err := Read(root, file)
		if err != nil {
			t.Fatal(err)
		}
		any := slices.ContainsFunc(p.Blocks, func(b Block) bool { return b.Has("manual") })
		if _, ok := manual[file]; ok != any {
			t.Errorf("%s: has commands that no test runs: %v, is in the table of such pages: %v", file, any, ok)
		}
	}
}

func build(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "nri_no_wasm,grpcnotrace", "-o", bin+"/",
		"./cmd/trimtab", "./cmd/kubectl-trimtab", "./cmd/trimtab-oci")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

func (p *Page) follow(t *testing.T, bin string) {
	t.Helper()
	var box *Sandbox
	var stale []*Difference
	for _, b := range p.Blocks {
		if err := b.Check(root); err != nil {
			t.Errorf("%s:%d: %v", p.File, b.Line, err)
			continue
		}
		if _, ok := b.Value("by"); ok || b.Has("manual") {
			continue
		}
		if box == nil {
			box = sandbox(t, bin)
		}
		err := box.Run(t.Context(), b)
		shown := differences(err)
		if stale = append(stale, shown...); err != nil && (!*update || len(shown) == 0) {
			t.Errorf("%s:%d: %v", p.File, b.Line, err)
		}
	}
	if *update && len(stale) > 0 {
		p.rewrite(t, stale)
	}
}

func sandbox(t *testing.T, bin string) *Sandbox {
	t.Helper()
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	// paths of Unix sockets must be short
	dir, err := os.MkdirTemp("", "page")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	box, err := NewSandbox(dir, checkout, bin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(box.Close)
	return box
}

// differences returns the commands whose output differs from the page.
func differences(err error) []*Difference {
	var list []*Difference
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			list = append(list, differences(e)...)
		}
		return list
	}
	if d := (*Difference)(nil); errors.As(err, &d) {
		return []*Difference{d}
	}
	return nil
}

// rewrite writes the output of commands into the page.
func (p *Page) rewrite(t *testing.T, stale []*Difference) {
	t.Helper()
	slices.SortFunc(stale, func(a, b *Difference) int { return cmp.Compare(b.Command.Line, a.Command.Line) })
	lines := p.lines
	for _, d := range stale {
		from := d.Command.wantLine - 1
		lines = slices.Replace(lines, from, from+len(d.Command.Want), d.Have...)
	}
	if err := os.WriteFile(filepath.Join(root, p.File), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}
