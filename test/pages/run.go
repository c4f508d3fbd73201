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

// Shown is a command whose output differs from its page.
type Shown struct {
	Command Command
	Have    []string
}

func (d *Shown) Error() string { return d.Command.Text + "\n" + difference(d.Command.Want, d.Have) }

// Run runs the commands of a block, as its words say. Its error joins all differences from the page.
func (s *Sandbox) Run(ctx context.Context, b Block) error {
	if err := s.startAgent(ctx, b); err != nil {
		return err
	}
	switch {
	case b.Has("background"):
		return s.background(ctx, b)
	case b.Has("interrupt"):
		return s.each(ctx, b)
	case b.Console:
		return s.console(ctx, b)
	}
	return s.script(ctx, b)
}

// startAgent starts the agent of a page when a block needs it.
func (s *Sandbox) startAgent(ctx context.Context, b Block) error {
	scenario, named := b.Value("agent")
	if s.agent != nil || !named && !b.Has("agent") {
		return nil
	}
	script := fmt.Sprintf("exec trimtab sim serve --agent --http none --dir %s %s", filepath.Join(s.dir, "etc/trimtab"), scenario)
	p, err := s.stay(ctx, script, func(out string) bool { return strings.Contains(out, "Interrupt (Ctrl-C) to stop it") })
	if err != nil {
		return err
	}
	s.agent = p
	return s.linkState()
}

var statePath = regexp.MustCompile(`(?m)^  state: (\S+)$`)

// linkState makes /var/lib/trimtab a link to the agent's state directory.
func (s *Sandbox) linkState() error {
	text, err := os.ReadFile(filepath.Join(s.dir, "etc/trimtab/config.yaml"))
	if err != nil {
		return err
	}
	if m := statePath.FindSubmatch(text); m != nil {
		return os.Symlink(string(m[1]), filepath.Join(s.dir, "var/lib/trimtab"))
	}
	return errors.New("the agent's configuration names no paths.state")
}

// prepared returns a script in the form in which the sandbox runs it.
func (s *Sandbox) prepared(b Block, script string) string {
	for _, w := range b.Words {
		if name, value, ok := strings.Cut(w, "="); ok && name != "agent" && name != "exit" {
			script = strings.ReplaceAll(script, name, value)
		}
	}
	return s.inside(script)
}

func (b Block) exitCode() int {
	text, _ := b.Value("exit")
	code, _ := strconv.Atoi(text) // Check refuses other words
	return code
}

func (s *Sandbox) script(ctx context.Context, b Block) error {
	out, code, err := s.run(ctx, "set -euo pipefail\n"+s.prepared(b, b.Script), false)
	if err == nil && code != b.exitCode() {
		err = fmt.Errorf("%s\nended with exit code %d, want %d. It printed:\n%s", b.Script, code, b.exitCode(), out)
	}
	return err
}

// console runs the commands in one shell, and compares the output of each.
func (s *Sandbox) console(ctx context.Context, b Block) error {
	const mark = "\x1e"
	script := "code=0\n"
	for i, c := range b.Commands {
		expected := 0
		if i == len(b.Commands)-1 {
			expected = b.exitCode()
		}
		script += fmt.Sprintf("%s\ncode=$?\n[ $code = %d ] || { echo \"exit code $code, want %d\"; exit 99; }\necho '%s'\n",
			s.prepared(b, c.Text), expected, expected, mark)
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
			errs = append(errs, &Shown{c, have})
		}
	}
	return errors.Join(errs...)
}

// each runs each line separately, and interrupts it if it keeps running.
func (s *Sandbox) each(ctx context.Context, b Block) error {
	for line := range strings.Lines(s.prepared(b, b.Script)) {
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

func (s *Sandbox) background(ctx context.Context, b Block) error {
	c := b.Commands[0]
	var have []string
	p, err := s.stay(ctx, s.prepared(b, c.Text), func(out string) bool {
		have = split(out)
		return matches(c.Want, have)
	})
	if err != nil {
		return errors.Join(&Shown{c, have}, err)
	}
	s.stays = append(s.stays, p)
	return nil
}
