// Package tree copies this repository's files into new git repositories (trees) for tests. Each tree has one commit and
// a fixed version, so builds in a tree do not depend on the path and version of this repository.
package tree

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Version is the git tag of the only commit in each tree. Time is the time of this commit.
const (
	Version = "v1.2.3"
	Time    = "2026-01-02T03:04:05Z"
)

// Root returns the directory of this repository.
func Root(t testing.TB) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("the path of this source file is not known")
	}
	return filepath.Join(filepath.Dir(file), "../../../..")
}

// File is a file that Copy writes into a tree in place of the repository's file with the same name.
type File struct{ Name, Text string }

// Copy makes a tree in a new directory, and returns the directory. The tree has the repository's files that git tracks,
// and the untracked files that git does not ignore. Files in replacements replace the repository's files.
func Copy(t testing.TB, replacements ...File) string {
	t.Helper()
	root, dir := Root(t), t.TempDir()
	list := Run(t, root, "git", "ls-files", "-co", "--exclude-standard", "-z")
	for name := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // git still lists the file, but it was removed from the directory
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
	for _, f := range replacements {
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

// Run runs a program in dir and returns the program's standard output. The program's environment has none of the
// caller's variables for git and make. It sets a fixed author and time for git commits.
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
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}
