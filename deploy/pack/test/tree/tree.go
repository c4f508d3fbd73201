// Package tree copies this repository's files for tests into trees with a known commit and version, so that builds in
// them do not depend on the repository's path and version.
package tree

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Version is the tag of the one commit in each tree, and Time is the time of that commit.
const (
	Version = "v1.2.3"
	Time    = "2026-01-02T03:04:05Z"
)

// Root is the repository's directory.
func Root(t testing.TB) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("no caller information")
	}
	return filepath.Join(filepath.Dir(file), "../../../..")
}

// File replaces a file of the repository in a tree.
type File struct{ Name, Text string }

// Copy makes a tree in a new directory, of the present files that git tracks or would add.
func Copy(t testing.TB, instead ...File) string {
	t.Helper()
	root, dir := Root(t), t.TempDir()
	list := Run(t, root, "git", "ls-files", "-co", "--exclude-standard", "-z")
	for name := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // removed without a commit
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range instead {
		if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "-A", "-f"}, {"commit", "-q", "--no-verify", "-m", "all"}, {"tag", Version},
	} {
		Run(t, dir, "git", append([]string{"-c", "core.autocrlf=false", "-c", "commit.gpgsign=false"}, args...)...)
	}
	return dir
}

// Run runs a program in dir and returns its standard output. Its environment has no git or make variables of the
// caller, and fixed names and times for commits.
func Run(t testing.TB, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	var env []string
	for _, set := range cmd.Environ() {
		name, _, _ := strings.Cut(set, "=")
		if !strings.HasPrefix(name, "GIT_") && !strings.HasPrefix(name, "MAKE") && name != "MFLAGS" && name != "ARGS" {
			env = append(env, set)
		}
	}
	cmd.Env = append(env, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Test", "GIT_AUTHOR_EMAIL=test@example.com", "GIT_AUTHOR_DATE="+Time,
		"GIT_COMMITTER_NAME=Test", "GIT_COMMITTER_EMAIL=test@example.com", "GIT_COMMITTER_DATE="+Time)
	var told strings.Builder
	cmd.Stderr = &told
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, out, told.String())
	}
	return string(out)
}
