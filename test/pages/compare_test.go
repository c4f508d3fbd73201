package pages

import (
	"strings"
	"testing"
)

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		name, want, have string
		ok               bool
	}{
		{"the same", "a\nb", "a\nb", true},
		{"another line", "a\nb", "a\nc", false},
		{"a line more", "a", "a\nb", false},
		{"a line less", "a\nb", "a", false},
		{"spaces at the end", "a\nb ", "a  \nb", true},
		{"lines are left out", "a\n...\nd", "a\nb\nc\nd", true},
		{"no lines are left out", "a\n...\nd", "a\nd", true},
		{"lines are left out at the end", "a\n...", "a\nb\nc", true},
		{"the first line that fits is not the one", "...\nx\ny", "x\nz\nx\ny", true},
		{"the line after what is left out is missing", "a\n...\nd", "a\nb\nc", false},
		{"text of a line is left out", "age 5s,... ready", "age 5s, node n1, ready", true},
		{"a line that is left out in part has an end", "a ... c", "a b d", false},
		{"patterns mean themselves", "a.c (x)", "abc (x)", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := matches(strings.Split(c.want, "\n"), strings.Split(c.have, "\n")); got != c.ok {
				t.Errorf("matches: %v, want %v", got, c.ok)
			}
		})
	}
}

const sample = "# A page\n\n<!-- commands: by=test/pages.TestParse -->\n\n## First\n\n" +
	"```sh exit=1\ntrimtab status\n```\n\n1. A step:\n\n   ```console agent POD=a/b\n   $ trimtab explain \\\n     POD\n   a line\n   ```\n\n" +
	"```yaml\na: 1\n```\n"

func TestParse(t *testing.T) {
	p, err := parse("page.md", sample)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Blocks) != 2 {
		t.Fatalf("%d blocks: %+v", len(p.Blocks), p.Blocks)
	}
	first, second := p.Blocks[0], p.Blocks[1]
	if first.Heading != "First" || first.Line != 7 || first.exitCode() != 1 || first.Script != "trimtab status" {
		t.Errorf("the first block: %+v", first)
	}
	for _, b := range p.Blocks {
		if err := b.Check(root); err != nil {
			t.Errorf("line %d: %v", b.Line, err)
		}
	}
	c := second.Commands[0]
	if c.Text != "trimtab explain \\\n  POD" || len(c.Want) != 1 || c.Want[0] != "a line" || p.lines[c.wantLine-1] != "   a line" {
		t.Errorf("the second block: %+v", second)
	}
}

// TestBadBlocks: blocks that a page must not have.
func TestBadBlocks(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a test that does not exist", "```sh by=test/pages.TestNothing\nx\n```", "no test of this name"},
		{"no test", "```sh by=somebody\nx\n```", "is not a test"},
		{"an unknown word", "```sh agnet\nx\n```", `unknown word "agnet"`},
		{"a command that is not run", "```text\n$ trimtab status\n```", "must be in a fence"},
		{"a fence without end", "```sh\nx\n", "has no end"},
		{"a console without command", "```console\nx\n```", "begins with a command"},
		{"no output to wait for", "```console background\n$ trimtab demo --serve\n```", "needs a console block with one command"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := parse("page.md", c.text)
			if err == nil {
				err = p.Blocks[0].Check(root)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestRunFails: a page with wrong commands, exit codes or output fails.
func TestRunFails(t *testing.T) {
	box := sandbox(t, t.TempDir())
	for _, c := range []struct{ name, text, want string }{
		{"a failed command", "```sh\nfalse\ntrue\n```", "exit code 1"},
		{"a missing exit code", "```sh exit=3\ntrue\n```", "want 3"},
		{"other output", "```console\n$ echo a\nb\n```", "the page shows"},
		{"a failed command of a console", "```console\n$ false\n$ true\n```", "exit code 1"},
		{"a background command that ends", "```console background\n$ echo a\nb\n```", "ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := parse("page.md", c.text)
			if err != nil {
				t.Fatal(err)
			}
			if err := box.Run(t.Context(), p.Blocks[0]); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestRun: directories of the node are those of the sandbox, and variables last until the page ends.
func TestRun(t *testing.T) {
	box := sandbox(t, t.TempDir())
	p, err := parse("page.md", "```sh\nexport A=b\necho x >/etc/trimtab/file\n```\n"+
		"```console exit=4 NAME=file\n$ cat /etc/trimtab/NAME; echo $A\nx\nb\n$ echo /run/a; (exit 4)\n/run/...\n```\n"+
		"```sh interrupt\nsleep 100\necho y\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range p.Blocks {
		if err := box.Run(t.Context(), b); err != nil {
			t.Errorf("line %d: %v", b.Line, err)
		}
	}
}
