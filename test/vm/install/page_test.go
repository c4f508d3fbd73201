package install_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/pages"
)

// page is docs/cluster.md: its commands by the heading above them. Each is run once.
type page struct {
	headings []string
	blocks   map[string][]pages.Block
}

// imageFile is the file that the page copies to the nodes.
const imageFile = "trimtab-image.tar"

func readPage(t *testing.T, name string) *page {
	t.Helper()
	read, err := pages.Read(root(t), filepath.Join("docs", name))
	if err != nil {
		t.Fatal(err)
	}
	p := &page{headings: read.Headings, blocks: map[string][]pages.Block{}}
	for _, b := range read.Blocks {
		p.blocks[b.Heading] = append(p.blocks[b.Heading], b)
	}
	return p
}

// follow runs the commands below a heading, and returns their output. The test fails at the end if the
// commands of a heading were not run.
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
		exit, _ := b.Value("exit")
		switch {
		case b.Has("node"):
			said.WriteString(c.onNodes(b.Script))
		case b.Has("forward"):
			said.WriteString(c.forwarded(b.Script))
		case exit == "1":
			out, err := c.sh(b.Script)
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
				c.t.Fatalf("%s\nended with %v, want exit code 1", b.Script, err)
			}
			said.WriteString(out)
		default:
			said.WriteString(c.must(b.Script))
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

// done fails the test if commands were not run.
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
