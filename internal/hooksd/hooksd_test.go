package hooksd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRead: files are sorted by name, a later directory has priority, and files that are not hooks are
// ignored.
func TestRead(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	put(t, first, "20-b.json", "b of the first")
	put(t, first, "10-a.json", "a")
	put(t, first, "readme.txt", "no hook")
	put(t, second, "20-b.json", "b of the second")
	put(t, second, "05-c.json", "c")
	want := []lifecycle.HookFile{
		{Path: second + "/05-c.json", Text: "c"}, {Path: first + "/10-a.json", Text: "a"}, {Path: second + "/20-b.json", Text: "b of the second"},
	}
	if d := cmp.Diff(want, Read([]string{first, filepath.Join(first, "missing"), second})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestBadFiles: unreadable files are reported, and all others are read.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	put(t, dir, "10-good.json", "{}")
	put(t, dir, "15-open.json", "{}")
	put(t, elsewhere, "secret.json", "{}")
	for _, err := range []error{
		os.Chmod(filepath.Join(dir, "15-open.json"), 0o666),
		os.Symlink(filepath.Join(elsewhere, "secret.json"), filepath.Join(dir, "20-out.json")),
		os.Symlink("10-good.json", filepath.Join(dir, "25-in.json")),
		syscall.Mkfifo(filepath.Join(dir, "30-pipe.json"), 0o600),
		os.Mkdir(filepath.Join(dir, "40-dir.json"), 0o700),
		os.WriteFile(filepath.Join(dir, "50-long.json"), make([]byte, maxFileSize+1), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	for _, f := range Read([]string{dir}) {
		got[f.Name()] = f.ReadError
	}
	for name, want := range map[string]string{
		"10-good.json": "", "15-open.json": "lets other users write;", "20-out.json": "path escapes from parent", "25-in.json": "",
		"30-pipe.json": "not a regular file", "40-dir.json": "not a regular file", "50-long.json": "more than 65536 bytes",
	} {
		if why, has := got[name]; !has || !strings.Contains(why, want) || (want == "") != (why == "") {
			t.Errorf("%s: %q, want %q", name, why, want)
		}
	}
}

// TestBadDirectories: a directory that other users can write to, one that is a file, and one with too many
// files.
func TestBadDirectories(t *testing.T) {
	t.Parallel()
	open, many, file := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "f")
	put(t, open, "10-a.json", "{}")
	if err := os.Chmod(open, 0o777); err != nil { //nolint:gosec // the fault under test
		t.Fatal(err)
	}
	put(t, filepath.Dir(file), "f", "")
	for i := range maxFiles + 1 {
		put(t, many, fmt.Sprintf("%d.json", i), "{}")
	}
	got := Read([]string{open, many, file})
	byPath := cmpopts.SortSlices(func(a, b lifecycle.HookFile) bool { return a.Path < b.Path })
	want := []lifecycle.HookFile{{Path: open + "/10-a.json"}, {Path: many}, {Path: file}}
	if d := cmp.Diff(want, got, byPath, cmpopts.IgnoreFields(lifecycle.HookFile{}, "ReadError")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for _, f := range got {
		if f.ReadError == "" {
			t.Errorf("%s: nothing is wrong with it", f.Path)
		}
	}
}
