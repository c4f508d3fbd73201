package install_test

import (
	"fmt"
	"os"
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

// block is one fence: commands of the administrator, or of each node ("sh node").
type block struct {
	node   bool
	script string
}

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
			if fence == "```sh" || fence == "```sh node" {
				p.blocks[heading] = append(p.blocks[heading], block{fence == "```sh node", strings.Join(script, "\n")})
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
		if !b.node {
			said.WriteString(c.must(b.script))
			continue
		}
		for _, n := range c.nodes {
			if strings.Contains(b.script, imageFile) {
				n.m.For(c.t).Put("/root/"+imageFile, 0o644, read(c, filepath.Join(c.root, "dist", imageFile)))
			}
			fmt.Fprintln(&said, n.m.For(c.t).Sh("cd /root\n"+b.script))
		}
	}
	return said.String()
}

// done fails for commands that nobody ran.
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
