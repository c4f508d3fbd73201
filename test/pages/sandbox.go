package pages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	interruptDelay = 2 * time.Second  // the time after which a command that is to be interrupted gets SIGINT
	maxBlockTime   = 90 * time.Second // the longest time that a block may take
)

// Sandbox is the place where the commands of one page run. It is a directory with files of a checkout, and with
// directories that replace those of the node.
type Sandbox struct {
	dir                 string     // the directory of the sandbox
	work                string     // the directory with the files of the checkout, in which the commands run
	agent               *process   // nil if no agent runs
	backgroundProcesses []*process // the commands of the blocks with the word background
}

// redirectedPath matches a path in one of the node's directories that the sandbox replaces by directories of its own.
var redirectedPath = regexp.MustCompile(`(^|[\s='":>(])/(etc|usr/local|var/lib|var/run|run|opt|tmp)\b`)

// toolNames returns the programs of the host that commands may call. None of these changes the machine or needs a cluster.
// systemctl, kubectl, helm and ctr are not in the list, so a block that calls one of them fails in the sandbox. Such a
// block must have the word by.
func toolNames() []string {
	return strings.Fields("awk basename bash cat chmod cp curl cut date diff dirname env false find grep gzip head id install jq " +
		"kill ln ls mkdir mktemp mv rm rmdir sed seq sh sha256sum sleep sort tail tar tee test timeout touch tr true uname uniq wc xargs")
}

// copiedPaths returns the files and directories of the checkout that commands of a page may use.
func copiedPaths() []string {
	return []string{"examples", "deploy/charts", "deploy/trimtab.yaml", "docs", "test/scenarios"}
}

// NewSandbox makes a sandbox in the empty directory dir. root is the directory of the repository, and bin has the built
// programs of trimtab. Close ends the processes of the sandbox.
func NewSandbox(dir, root, bin string) (*Sandbox, error) {
	s := &Sandbox{dir: dir, work: filepath.Join(dir, "trimtab")}
	for _, d := range []string{"etc/trimtab", "etc/bash_completion.d", "usr/local/bin", "usr/local/share/man/man1", "usr/local/share/man/man5", "var/lib", "var/run", "run", "opt", "tmp", "programs", "home"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	for _, name := range copiedPaths() {
		if err := copyTree(filepath.Join(root, name), filepath.Join(s.work, name)); err != nil {
			return nil, err
		}
	}
	if err := os.Symlink(bin, filepath.Join(s.work, "bin")); err != nil {
		return nil, err
	}
	for _, name := range toolNames() {
		if path, err := exec.LookPath(name); err == nil {
			if err := os.Symlink(path, filepath.Join(dir, "programs", name)); err != nil {
				return nil, err
			}
		}
	}
	// The programs are already built, so "make build" does nothing. "make demo" is really run, because it ends soon and
	// does not need root. Any other target is only checked with make -n.
	script := fmt.Sprintf(`#!/bin/sh
make="/usr/bin/make -f %s/Makefile -o build"
case "$1" in build) exit 0 ;; demo) exec $make "$@" ;; *) exec $make -n "$@" >/dev/null ;; esac
`, root)
	return s, os.WriteFile(filepath.Join(dir, "programs/make"), []byte(script), 0o755)
}

// copyTree copies a file, or a directory with all its files.
func copyTree(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode())
}

// Close ends the agent and the commands of the blocks with the word background.
func (s *Sandbox) Close() {
	for _, p := range s.backgroundProcesses {
		p.end()
	}
	if s.agent != nil {
		s.agent.end()
	}
}

// toSandboxPaths replaces paths of the node in a text by paths of the sandbox.
func (s *Sandbox) toSandboxPaths(text string) string {
	return redirectedPath.ReplaceAllString(text, "${1}"+s.dir+"/${2}")
}

// toNodePaths replaces paths of the sandbox in a text by paths of the node.
func (s *Sandbox) toNodePaths(text string) string { return strings.ReplaceAll(text, s.dir, "") }

// configFile returns the path of the configuration file in the sandbox, or "" if there is no such file.
func (s *Sandbox) configFile() string {
	file := filepath.Join(s.dir, "etc/trimtab/config.yaml")
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return file
}

// command returns a command that runs a script in a shell. The shell begins with the working directory and the
// environment variables that the previous script had at its end.
func (s *Sandbox) command(ctx context.Context, script string) *exec.Cmd {
	saved := filepath.Join(s.dir, "variables")
	script = fmt.Sprintf("[ ! -f %[1]s ] || . %[1]s; trap '{ export -p | grep -v TRIMTAB_CONFIG=..$; echo \"cd $PWD\"; } >%[1]s' EXIT\n%s", saved, script)
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", script)
	cmd.Dir = s.work
	cmd.Env = []string{
		"PATH=" + filepath.Join(s.dir, "programs") + ":" + filepath.Join(s.work, "bin"),
		"HOME=" + filepath.Join(s.dir, "home"), "LANG=C.UTF-8", "TERM=dumb", "TMPDIR=" + filepath.Join(s.dir, "tmp"),
		"TRIMTAB_CONFIG=" + s.configFile(),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// run runs a script, and returns its output and exit code. If interrupt is set, a script that keeps running gets SIGINT
// after a pause.
func (s *Sandbox) run(ctx context.Context, script string, interrupt bool) (string, int, error) {
	ctx, cancel := context.WithTimeout(ctx, maxBlockTime)
	defer cancel()
	var out bytes.Buffer
	cmd := s.command(ctx, script)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = interruptDelay
	if err := cmd.Start(); err != nil {
		return "", 0, err
	}
	if interrupt {
		timer := time.AfterFunc(interruptDelay, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) })
		defer timer.Stop()
	}
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return s.toNodePaths(out.String()), exit.ExitCode(), nil
	}
	if interrupt && cmd.ProcessState != nil && cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGINT {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("the script did not end with an exit code: %w. It printed:\n%s", err, out.String())
	}
	return s.toNodePaths(out.String()), 0, err
}
