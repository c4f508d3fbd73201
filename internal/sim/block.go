package sim

import (
	"strings"
	"unicode/utf8"
)

// block is text of known width for a terminal: lines whose visible width is
// counted where they are made, so that colour does not count.
type block struct {
	lines []string
	width int
}

// beside puts blocks next to each other, gap columns apart.
func beside(gap int, blocks ...block) block {
	var out block
	for i, b := range blocks {
		for len(out.lines) < len(b.lines) {
			out.lines = append(out.lines, strings.Repeat(" ", out.width))
		}
		between := ""
		if i > 0 {
			between = strings.Repeat(" ", gap)
		}
		for n := range out.lines {
			line := strings.Repeat(" ", b.width)
			if n < len(b.lines) {
				line = b.lines[n]
			}
			out.lines[n] += between + line
		}
		out.width += len(between) + b.width
	}
	return out
}

// below stacks blocks, filled up to the widest.
func below(blocks ...block) block {
	var out block
	for _, b := range blocks {
		out.width = max(out.width, b.width)
	}
	for _, b := range blocks {
		for _, l := range b.lines {
			out.lines = append(out.lines, l+strings.Repeat(" ", out.width-b.width))
		}
	}
	return out
}

// box draws a frame with a title around a block.
func box(title string, b block) block {
	inner := max(b.width+2, utf8.RuneCountInString(title)+4)
	out := block{width: inner + 2}
	out.lines = append(out.lines, "╭─ "+title+" "+strings.Repeat("─", inner-utf8.RuneCountInString(title)-3)+"╮")
	for _, l := range b.lines {
		out.lines = append(out.lines, "│ "+l+strings.Repeat(" ", inner-b.width-1)+"│")
	}
	out.lines = append(out.lines, "╰"+strings.Repeat("─", inner)+"╯")
	return out
}

// wrap breaks text into lines of at most width columns, after blanks and
// commas where it can.
func wrap(text string, width int) []string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		for utf8.RuneCountInString(line) > width {
			r := []rune(line)
			at := width
			for i := width; i > width/3; i-- {
				if r[i-1] == ' ' || r[i-1] == ',' {
					at = i
					break
				}
			}
			lines = append(lines, strings.TrimRight(string(r[:at]), " "))
			line = strings.TrimLeft(string(r[at:]), " ")
		}
		lines = append(lines, line)
	}
	return lines
}

// pad fills text up to width columns.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(width-utf8.RuneCountInString(text), 0))
}

// ink colours text. The zero ink does not.
type ink struct{ on bool }

func (i ink) paint(code, text string) string {
	if !i.on || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// The colours used, as SGR codes.
const (
	bold   = "1"
	dim    = "2"
	red    = "1;31"
	green  = "32"
	yellow = "1;33"
	blue   = "1;34"
)
