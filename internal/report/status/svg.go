package status

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/cpumap"
	"github.com/trimtab/trimtab/internal/report/term"
)

// SVG draws a node: what it is, its CPUs, and who may use each.
func SVG(w io.Writer, n api.Node, now time.Time) error {
	head := []cpumap.Line{{Style: cpumap.Title, Text: "trimtab " + term.Clean(n.Version)}}
	for _, a := range n.Attachments {
		head = append(head, cpumap.Line{Text: "attachment " + attachment(a)})
	}
	return draw(w, n, append(head, cpumap.Line{Text: fmt.Sprintf("%s; %s", now.UTC().Format(time.RFC3339), countOf(n))}))
}

// Caption is printed above the picture of a described node, instead of an agent's version, attachment and time.
// Each part may be empty.
type Caption struct{ Title, Line string }

// CaptionedSVG draws a described node: the same node gives the same picture.
func CaptionedSVG(w io.Writer, n api.Node, c Caption) error {
	return draw(w, n, []cpumap.Line{{Style: cpumap.Title, Text: term.Clean(c.Title)}, {Text: term.Clean(c.Line)}, {Text: countOf(n)}})
}

func draw(w io.Writer, n api.Node, head []cpumap.Line) error {
	if n.ConfigError != "" {
		head = append(head, cpumap.Line{Style: cpumap.Warning, Text: "configuration not in force: " + term.Clean(strings.ReplaceAll(n.ConfigError, "\n", "; "))})
	}
	var b bytes.Buffer
	if err := cpumap.SVG(&b, head, n.CPUs); err != nil {
		return err
	}
	return send(w, &b)
}

// countOf says how many containers of each class there are, and what is wrong.
func countOf(n api.Node) string {
	classes := map[string]int{}
	for _, c := range n.Containers {
		classes[c.Class]++
	}
	parts := []string{term.Count(len(n.Containers), "container")}
	for _, class := range []string{"system", "dedicated", "shared", "reclaimed", "none"} {
		if classes[class] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", classes[class], class))
		}
	}
	if n.Unapplied+n.Problems > 0 {
		parts = append(parts, term.Count(n.Unapplied, "value")+" not applied", term.Count(n.Problems, "problem"))
	}
	return strings.Join(parts, ", ")
}
