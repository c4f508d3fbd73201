package install_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// page is docs/cluster.md: its fenced commands by the heading above them, each run once.
type page struct {
	headings []string
	blocks   map[string][]block
}

// imageFile is what the page has copied to the nodes.
const imageFile = "trimtab-image.tar"

// block is one fence: commands of the administrator, or of each node ("sh node"), those that end with exit code 1
// ("sh exit=1"), and one that goes on until it is interrupted ("sh forward").
type block struct {
	kind   string
	script string
}

// kinds are those of blocks, by the fence.
var kinds = map[string]string{"```sh": "", "```sh node": "node", "```sh exit=1": "exit=1", "```sh forward": "forward"}

func readPage(t *testing.T, name string) *page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	p, heading := &page{blocks: map[string][]block{}}, ""
	var script []string
	fence := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		after, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && fence == "":
			fence, script = "```"+after, nil
		case isFence:
			if kind, ok := kinds[fence]; ok {
				p.blocks[heading] = append(p.blocks[heading], block{kind, strings.Join(script, "\n")})
			}
			fence = ""
		case fence != "":
			script = append(script, line)
		default:
			if title, ok := strings.CutPrefix(line, "## "); ok {
				heading = title
				p.headings = append(p.headings, title)
			}
		}
	}
	return p
}

// follow runs the commands below a heading, and returns what they printed. What was followed is done with: a heading
// whose commands nobody ran fails at the end.
func (c *cluster) follow(heading string) string {
	c.t.Helper()
	p := c.page
	blocks, ok := p.blocks[heading]
	if !ok {
		c.t.Fatalf("docs/cluster.md has no commands below %q, or they were run before: %q", heading, p.headings)
	}
	delete(p.blocks, heading)
	var said strings.Builder
	for _, b := range blocks {
		switch b.kind {
		case "node":
			said.WriteString(c.onNodes(b.script))
		case "forward":
			said.WriteString(c.forwarded(b.script))
		case "exit=1":
			out, err := c.sh(b.script)
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
				c.t.Fatalf("%s\nended with %v, want exit code 1", b.script, err)
			}
			said.WriteString(out)
		default:
			said.WriteString(c.must(b.script))
		}
	}
	return said.String()
}

// onNodes runs a script on each node.
func (c *cluster) onNodes(script string) string {
	c.t.Helper()
	var said strings.Builder
	for _, n := range c.nodes {
		if strings.Contains(script, imageFile) {
			n.m.For(c.t).Put("/root/"+imageFile, 0o644, read(c, filepath.Join(c.root, "dist", imageFile)))
		}
		fmt.Fprintln(&said, n.m.For(c.t).Sh("cd /root\n"+script))
	}
	return said.String()
}

// done fails the test for commands that were not run.
func (p *page) done(t *testing.T) {
	t.Helper()
	for _, heading := range p.headings {
		if p.blocks[heading] != nil {
			t.Errorf("the commands below %q were not run", heading)
		}
	}
	if len(p.headings) == 0 || !slices.Contains(p.headings, "Remove") {
		t.Errorf("the page has no end: %q", p.headings)
	}
}
