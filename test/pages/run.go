package pages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Difference is the error that the output of a command differs from the page. Have has the lines that the command printed.
type Difference struct {
	Command Command
	Have    []string
}

// Error returns the command, the lines of the page, and the lines that the command printed.
func (d *Difference) Error() string {
	return d.Command.Text + "\n" + difference(d.Command.Want, d.Have)
}

// Run runs the commands of a block in the way that the block's words say. For a console, the error joins all
// differences from the page.
func (s *Sandbox) Run(ctx context.Context, b Block) error {
	if err := s.startAgent(ctx, b); err != nil {
		return err
	}
	switch {
	case b.Has("background"):
		return s.startBackground(ctx, b)
	case b.Has("interrupt"):
		return s.runLines(ctx, b)
	case b.Console:
		return s.runConsole(ctx, b)
	}
	return s.runScript(ctx, b)
}

// startAgent starts the agent of the page if a block has the word agent and the agent does not run yet.
func (s *Sandbox) startAgent(ctx context.Context, b Block) error {
	scenario, named := b.Value("agent")
	if s.agent != nil || !named && !b.Has("agent") {
		return nil
	}
	script := fmt.Sprintf("exec trimtab sim serve --agent --http none --dir %s %s", filepath.Join(s.dir, "etc/trimtab"), scenario)
	p, err := s.startProcess(ctx, script, func(out string) bool { return strings.Contains(out, "Interrupt (Ctrl-C) to stop it") })
	if err != nil {
		return err
	}
	s.agent = p
	return s.linkState()
}

// statePathPattern matches paths.state in the configuration file of the agent.
var statePathPattern = regexp.MustCompile(`(?m)^  state: (\S+)$`)

// linkState makes /var/lib/trimtab in the sandbox a symbolic link to the agent's state directory.
func (s *Sandbox) linkState() error {
	text, err := os.ReadFile(filepath.Join(s.dir, "etc/trimtab/config.yaml"))
	if err != nil {
		return err
	}
	if m := statePathPattern.FindSubmatch(text); m != nil {
		return os.Symlink(string(m[1]), filepath.Join(s.dir, "var/lib/trimtab"))
	}
	return errors.New("the configuration file of the agent in the sandbox has no paths.state")
}

// prepareScript returns a script in the form in which the sandbox runs it: with the block's values in place of placeholders,
// and with the sandbox's directories in place of the node's.
func (s *Sandbox) prepareScript(b Block, script string) string {
	for _, w := range b.Words {
		if name, value, ok := strings.Cut(w, "="); ok && name != "agent" && name != "exit" {
			script = strings.ReplaceAll(script, name, value)
		}
	}
	return s.toSandboxPaths(script)
}

// exitCode returns the exit code with which the last command must end; 0 without the word exit.
func (b Block) exitCode() int {
	text, _ := b.Value("exit")
	code, _ := strconv.Atoi(text) // the error cannot occur: Check refuses such a block
	return code
}

// runScript runs a block of the language sh. It stops at the first command that fails.
func (s *Sandbox) runScript(ctx context.Context, b Block) error {
	out, code, err := s.run(ctx, "set -euo pipefail\n"+s.prepareScript(b, b.Script), false)
	if err == nil && code != b.exitCode() {
		err = fmt.Errorf("%s\nended with exit code %d, want %d. It printed:\n%s", b.Script, code, b.exitCode(), out)
	}
	return err
}

// runConsole runs the commands of a console in one shell, and compares the output of each command with the page.
func (s *Sandbox) runConsole(ctx context.Context, b Block) error {
	const mark = "\x1e"
	script := "code=0\n"
	for i, c := range b.Commands {
		expected := 0
		if i == len(b.Commands)-1 {
			expected = b.exitCode()
		}
		script += fmt.Sprintf("%s\ncode=$?\n[ $code = %d ] || { echo \"exit code $code, want %d\"; exit 99; }\necho '%s'\n",
			s.prepareScript(b, c.Text), expected, expected, mark)
	}
	out, code, err := s.run(ctx, script, false)
	if err != nil {
		return err
	}
	outs := strings.Split(out, mark+"\n")
	if code != 0 {
		return fmt.Errorf("%s\n%s", b.Commands[min(len(outs), len(b.Commands))-1].Text, outs[len(outs)-1])
	}
	var errs []error
	for i, c := range b.Commands {
		if have := split(outs[i]); c.Want != nil && !matches(c.Want, have) {
			errs = append(errs, &Difference{c, have})
		}
	}
	return errors.Join(errs...)
}

// runLines runs each line of a block in its own shell. A line that keeps running gets SIGINT.
func (s *Sandbox) runLines(ctx context.Context, b Block) error {
	for line := range strings.Lines(s.prepareScript(b, b.Script)) {
		out, code, err := s.run(ctx, line, true)
		if err == nil && code != 0 && code != 130 {
			err = fmt.Errorf("%s\nended with exit code %d. It printed:\n%s", line, code, out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// startBackground starts the command of a block, which runs until Close. It returns when the command has printed the output
// that the page shows.
func (s *Sandbox) startBackground(ctx context.Context, b Block) error {
	c := b.Commands[0]
	var have []string
	p, err := s.startProcess(ctx, s.prepareScript(b, c.Text), func(out string) bool {
		have = split(out)
		return matches(c.Want, have)
	})
	if err != nil {
		return errors.Join(&Difference{c, have}, err)
	}
	s.backgroundProcesses = append(s.backgroundProcesses, p)
	return nil
}
