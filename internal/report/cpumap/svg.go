package cpumap

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// Sizes in the drawing, in pixels.
const (
	svgMargin  = 24
	svgCell    = 26 // width and height of a CPU
	svgGap     = 5  // space between cores
	svgPad     = 12 // space inside a node's box
	svgTitle   = 24 // height of the title above a node's cores
	svgLine    = 20 // height of a line of text
	svgColumns = 16 // CPUs in a row of a node
	svgWidth   = 640
)

// svgOwners are the colours of CPUs that a pod owns, by the pod's letter. After the last colour, the first colour is
// used again. Colour-blind people can distinguish the colours, and each CPU also shows the letter.
var svgOwners = []string{
	"#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#b8860b", "#5f9ea0", "#9370db",
}

// svgFills are the colours of the marks that are not letters.
var svgFills = map[string]string{
	markShared: "#d6e6f5", markReclaimed: "#dcefd2", markBoth: "#e4ebe8", markBalloon: "#e3dcf2", markReserved: "#8d949c", markNone: "#ffffff",
	TooManyOwners: "#bbbbbb",
}

// Line is a line of text at the top of a drawing. Style has SVG attributes: Title, Warning, or "" for plain text.
type Line struct{ Style, Text string }

// Styles of lines.
const (
	Title   = ` font-size="18" font-weight="bold"`
	Warning = ` fill="#b00020"`
)

// SVG draws the packages, NUMA nodes, cores and CPUs of a node below the lines of text in head. The colour of a CPU
// shows who may use the CPU, and a legend explains the colours. The SVG refers to no other files.
func SVG(w io.Writer, head []Line, c api.NodeCPUs) error {
	var body bytes.Buffer
	d := drawing{out: &body, cpuMap: New(c), y: svgMargin + 4}
	for _, l := range head {
		d.writeLine(l.Style, l.Text)
	}
	d.y += svgGap
	for _, group := range byPackage(c.Nodes) {
		d.drawPackage(group)
	}
	d.drawLegend(c)
	width, height := max(svgWidth, d.right+svgMargin), d.y+svgMargin
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="13">`+"\n"+
		`<rect width="%[1]d" height="%[2]d" fill="#fbfbfa"/>`+"\n%[3]s</svg>\n", width, height, body.String())
	if err != nil {
		return fmt.Errorf("write the SVG: %w", err)
	}
	return nil
}

// drawing is an unfinished drawing, which is written from top to bottom.
type drawing struct {
	out    *bytes.Buffer
	cpuMap Map
	y      int // the bottom of what is drawn, in pixels from the top
	right  int // the right edge of what is drawn, in pixels from the left
}

// writeText writes a text that begins at x, with its baseline at y.
func (d *drawing) writeText(x, y int, attributes, text string) {
	fmt.Fprintf(d.out, `<text x="%d" y="%d"%s>%s</text>`+"\n", x, y, attributes, escape(text))
	d.right = max(d.right, x+len([]rune(text))*15/2)
}

// writeLine writes a line of text at the left margin, below what is drawn.
func (d *drawing) writeLine(attributes, text string) {
	d.y += svgLine
	d.writeText(svgMargin, d.y-5, attributes, text)
}

// byPackage groups the NUMA nodes by CPU package, in order. If the agent reports no packages, all nodes are one group.
func byPackage(nodes []api.NUMA) [][]api.NUMA {
	var groups [][]api.NUMA
	for i, n := range nodes {
		if i == 0 || n.Package != nodes[i-1].Package {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], n)
	}
	return groups
}

// packageTitle returns the title of the NUMA nodes of one package. Nodes that have only memory have the package -1.
func packageTitle(nodes []api.NUMA) string {
	if nodes[0].Package < 0 {
		return "memory only"
	}
	return fmt.Sprintf("socket %d", nodes[0].Package)
}

// drawPackage draws the nodes of a package side by side, two in a row.
func (d *drawing) drawPackage(nodes []api.NUMA) {
	top := d.y
	d.y += svgTitle
	d.writeText(svgMargin+svgPad, d.y-7, ` font-weight="bold"`, packageTitle(nodes))
	right := 0
	for row := range slices.Chunk(nodes, 2) {
		x, bottom := svgMargin+svgPad, 0
		for _, n := range row {
			w, h := d.drawNode(n, x, d.y)
			x += w + svgPad
			bottom = max(bottom, d.y+h)
		}
		right = max(right, x)
		d.y = bottom + svgPad
	}
	fmt.Fprintf(d.out, `<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="none" stroke="#9aa0a6"/>`+"\n", svgMargin, top, right-svgMargin, d.y-top)
	d.right = max(d.right, right)
	d.y += svgPad
}

// drawNode draws one NUMA node with its top left corner at x and y, and returns its size.
func (d *drawing) drawNode(n api.NUMA, x, y int) (width, height int) {
	title := fmt.Sprintf("node %d: %s", n.ID, term.Clean(n.CPUs))
	if n.CPUs == "" {
		title = fmt.Sprintf("node %d: no CPUs", n.ID)
	}
	if n.Memory > 0 {
		title += ", " + gib(n.Memory)
	}
	atX, atY, right := x+svgPad, y+svgTitle, x+2*svgPad+len([]rune(title))*15/2
	column := 0
	for _, core := range cores(n) {
		if column > 0 && column+len(core) > svgColumns {
			column, atX, atY = 0, x+svgPad, atY+svgCell+svgGap
		}
		atX = d.drawCore(core, atX, atY)
		right = max(right, atX-svgGap+svgPad)
		column += len(core)
	}
	width, height = right-x, atY+svgCell+svgPad-y
	if n.CPUs == "" {
		height = svgTitle + svgPad
	}
	fmt.Fprintf(d.out, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="none" stroke="#c4c7cb"/>`+"\n", x, y, width, height)
	d.writeText(x+svgPad, y+16, "", title)
	return width, height
}

// cores returns the CPUs of each core of a NUMA node. If the agent reports no cores, each CPU counts as a core.
func cores(n api.NUMA) [][]int {
	var all [][]int
	for _, list := range n.Cores {
		all = append(all, CPUs(list))
	}
	if len(all) == 0 {
		for _, id := range CPUs(n.CPUs) {
			all = append(all, []int{id})
		}
	}
	return all
}

// drawCore draws the CPUs of a core from x to the right, and returns the x position of the next core.
func (d *drawing) drawCore(ids []int, x, y int) int {
	for _, id := range ids {
		mark := d.cpuMap.marks[id]
		ink, fill := "#202124", markColor(mark, svgFills, svgOwners)
		if dark := []string{svgFills[markReserved], "#0072b2"}; slices.Contains(dark, fill) {
			ink = "#ffffff"
		}
		fmt.Fprintf(d.out, `<g><title>CPU %d: %s</title><rect x="%d" y="%d" width="%d" height="%d" fill="%s" stroke="#80868b"/>`,
			id, escape(d.markMeaning(mark)), x, y, svgCell, svgCell, fill)
		fmt.Fprintf(d.out, `<text x="%d" y="%d" text-anchor="middle" font-size="10" fill="%s">%d</text>`, x+svgCell/2, y+11, ink, id)
		fmt.Fprintf(d.out, `<text x="%d" y="%d" text-anchor="middle" font-size="11" font-weight="bold" fill="%s">%s</text></g>`+"\n",
			x+svgCell/2, y+22, ink, escape(mark))
		x += svgCell
	}
	return x + svgGap
}

// markMeaning returns the legend's text for a mark.
func (d *drawing) markMeaning(mark string) string {
	for _, o := range d.cpuMap.legend {
		if o.mark == mark {
			return o.text
		}
	}
	return "in no pool"
}

// markColor returns the colour of a mark: from owners if the mark is the letter of a pod, and from others if it is not.
func markColor(mark string, others map[string]string, owners []string) string {
	if color, found := others[mark]; found {
		return color
	}
	return owners[strings.Index(letters, mark)%len(owners)]
}

// drawLegend draws the legend, which explains the marks and lists the pools.
func (d *drawing) drawLegend(c api.NodeCPUs) {
	for _, o := range d.cpuMap.legend {
		d.y += svgLine
		fmt.Fprintf(d.out, `<rect x="%d" y="%d" width="16" height="16" fill="%s" stroke="#80868b"/>`+"\n", svgMargin, d.y-16, markColor(o.mark, svgFills, svgOwners))
		d.writeText(svgMargin+8, d.y-4, ` text-anchor="middle" font-size="11" font-weight="bold"`, o.mark)
		d.writeText(svgMargin+24, d.y-4, "", o.text)
	}
	for _, p := range c.Pools {
		d.writeLine("", fmt.Sprintf("pool %s, class %s: CPUs %s, %s", term.Clean(p.Name), term.Clean(p.Class), term.Clean(p.CPUs), term.Count(p.Members, "container")))
	}
	if len(c.Grants) == 0 {
		d.writeLine(` fill="#5f6368"`, "no pod owns CPUs")
	}
}

// gib formats a number of bytes in GiB.
func gib(bytes uint64) string {
	return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
}

// escape makes a text from the agent valid in XML. It replaces characters that XML does not allow by U+FFFD.
func escape(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // writing to a buffer cannot fail
	return b.String()
}
