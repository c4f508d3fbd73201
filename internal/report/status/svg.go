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

// SVG draws the CPUs of a node and who may use each, below the agent's version and attachments.
func SVG(w io.Writer, n api.Node, now time.Time) error {
	head := []cpumap.Line{{Style: cpumap.Title, Text: "trimtab " + term.Clean(n.Version)}}
	for _, a := range n.Attachments {
		head = append(head, cpumap.Line{Text: term.Clean("attachment " + a.Text())})
	}
	return drawSVG(w, n, append(head, cpumap.Line{Text: fmt.Sprintf("%s; %s", now.UTC().Format(time.RFC3339), countText(n))}))
}

// Caption is the text above the drawing of a simulated node, instead of the agent's version, attachments and the time.
// Title and Line may be empty.
type Caption struct{ Title, Line string }

// CaptionedSVG draws the CPUs of a simulated node below a caption. The same node and caption always give the same
// output.
func CaptionedSVG(w io.Writer, n api.Node, c Caption) error {
	return drawSVG(w, n, []cpumap.Line{{Style: cpumap.Title, Text: term.Clean(c.Title)}, {Text: term.Clean(c.Line)}, {Text: countText(n)}})
}

// drawSVG draws the CPUs of a node below the lines of head. If the agent refused a configuration, it adds a warning.
func drawSVG(w io.Writer, n api.Node, head []cpumap.Line) error {
	if n.ConfigError != "" {
		head = append(head, cpumap.Line{Style: cpumap.Warning, Text: "configuration not in force: " + term.Clean(strings.ReplaceAll(n.ConfigError, "\n", "; "))})
	}
	var b bytes.Buffer
	if err := cpumap.SVG(&b, head, n.CPUs); err != nil {
		return err
	}
	return writeTrimmed(w, &b)
}

// countText returns a text with three numbers: containers (in total and of each class), values that are not in force,
// and problems.
func countText(n api.Node) string {
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
