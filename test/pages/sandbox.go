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
	patience = 2 * time.Second  // the time for an interrupted command
	longest  = 90 * time.Second // the time for a block
)

// Sandbox is the place where the commands of one page run: a separate directory with the files of a
// checkout, and with directories that replace those of the node.
type Sandbox struct {
	dir   string
	work  string
	agent *process
	stays []*process
}

// redirected are directories of the node that commands read and write in the sandbox.
var redirected = regexp.MustCompile(`(^|[\s='":>(])/(etc|usr/local|var/lib|var/run|run|opt|tmp)\b`)

// tools are the host's programs that commands may call. None changes the machine or needs a cluster:
// systemctl, kubectl, helm and ctr are left out, so that a block fails if it does not name its test.
func tools() []string {
	return strings.Fields("awk basename bash cat chmod cp curl cut date diff dirname env false find grep gzip head id install jq " +
		"kill ln ls mkdir mktemp mv rm rmdir sed seq sh sha256sum sleep sort tail tar tee test timeout touch tr true uname uniq wc xargs")
}

// copied lists the files of the checkout that a page may name.
func copied() []string {
	return []string{"examples", "deploy/charts", "deploy/trimtab.yaml", "docs", "test/scenarios"}
}

// NewSandbox makes a sandbox in an empty directory, with the programs of the directory bin. Close ends its
// processes.
func NewSandbox(dir, root, bin string) (*Sandbox, error) {
	s := &Sandbox{dir: dir, work: filepath.Join(dir, "trimtab")}
	for _, d := range []string{"etc/trimtab", "etc/bash_completion.d", "usr/local/bin", "usr/local/share/man/man1", "usr/local/share/man/man5", "var/lib", "var/run", "run", "opt", "tmp", "programs", "home"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	for _, name := range copied() {
		if err := copyTree(filepath.Join(root, name), filepath.Join(s.work, name)); err != nil {
			return nil, err
		}
	}
	if err := os.Symlink(bin, filepath.Join(s.work, "bin")); err != nil {
		return nil, err
	}
	for _, name := range tools() {
		if path, err := exec.LookPath(name); err == nil {
			if err := os.Symlink(path, filepath.Join(dir, "programs", name)); err != nil {
				return nil, err
			}
		}
	}
	// Programs are built already, and make runs only targets that end soon without root. For other targets
	// it prints what it would do.
	script := fmt.Sprintf(`#!/bin/sh
make="/usr/bin/make -f %s/Makefile -o build"
case "$1" in build) exit 0 ;; demo) exec $make "$@" ;; *) exec $make -n "$@" >/dev/null ;; esac
`, root)
	return s, os.WriteFile(filepath.Join(dir, "programs/make"), []byte(script), 0o755)
}

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

// Close ends the agent and the background processes.
func (s *Sandbox) Close() {
	for _, p := range s.stays {
		p.end()
	}
	if s.agent != nil {
		s.agent.end()
	}
}

// inside replaces the node's directories in a text by those of the sandbox, and outside replaces them back.
func (s *Sandbox) inside(text string) string {
	return redirected.ReplaceAllString(text, "${1}"+s.dir+"/${2}")
}

func (s *Sandbox) outside(text string) string { return strings.ReplaceAll(text, s.dir, "") }

// configFile is the configuration file in the sandbox, if there is one.
func (s *Sandbox) configFile() string {
	file := filepath.Join(s.dir, "etc/trimtab/config.yaml")
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return file
}

// command returns a shell that runs a script. It keeps the directory and the variables of the previous
// block.
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

// run runs a script and returns its output and exit code. With interrupt, a script that keeps running gets
// SIGINT.
func (s *Sandbox) run(ctx context.Context, script string, interrupt bool) (string, int, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	var out bytes.Buffer
	cmd := s.command(ctx, script)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = patience
	if err := cmd.Start(); err != nil {
		return "", 0, err
	}
	if interrupt {
		timer := time.AfterFunc(patience, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) })
		defer timer.Stop()
	}
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return s.outside(out.String()), exit.ExitCode(), nil
	}
	if interrupt && cmd.ProcessState != nil && cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGINT {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("%w, after it printed:\n%s", err, out.String())
	}
	return s.outside(out.String()), 0, err
}
