package term

import (
	"strings"
	"unicode/utf8"
)

// Block is a rectangle of text for a terminal. Width is the number of columns of each line, without colour codes.
type Block struct {
	Lines []string
	Width int
}

// Beside puts blocks next to each other, gap columns apart.
func Beside(gap int, blocks ...Block) Block {
	var out Block
	for i, b := range blocks {
		for len(out.Lines) < len(b.Lines) {
			out.Lines = append(out.Lines, strings.Repeat(" ", out.Width))
		}
		between := ""
		if i > 0 {
			between = strings.Repeat(" ", gap)
		}
		for n := range out.Lines {
			line := strings.Repeat(" ", b.Width)
			if n < len(b.Lines) {
				line = b.Lines[n]
			}
			out.Lines[n] += between + line
		}
		out.Width += len(between) + b.Width
	}
	return out
}

// Below puts blocks below each other, and pads them to the width of the widest block.
func Below(blocks ...Block) Block {
	var out Block
	for _, b := range blocks {
		out.Width = max(out.Width, b.Width)
	}
	for _, b := range blocks {
		for _, l := range b.Lines {
			out.Lines = append(out.Lines, l+strings.Repeat(" ", out.Width-b.Width))
		}
	}
	return out
}

// Flow puts blocks side by side, and starts a new row when the next block does not fit the width.
func Flow(blocks []Block, width, gap int) Block {
	var rows []Block
	for len(blocks) > 0 {
		n, w := 1, blocks[0].Width
		for n < len(blocks) && w+gap+blocks[n].Width <= width {
			w += gap + blocks[n].Width
			n++
		}
		rows = append(rows, Beside(gap, blocks[:n]...))
		blocks = blocks[n:]
	}
	return Below(rows...)
}

// Box draws a frame with a title around a block.
func Box(title string, b Block) Block {
	inner := max(b.Width+2, utf8.RuneCountInString(title)+4)
	out := Block{Width: inner + 2}
	out.Lines = append(out.Lines, "╭─ "+title+" "+strings.Repeat("─", inner-utf8.RuneCountInString(title)-3)+"╮")
	for _, l := range b.Lines {
		out.Lines = append(out.Lines, "│ "+l+strings.Repeat(" ", inner-b.Width-1)+"│")
	}
	out.Lines = append(out.Lines, "╰"+strings.Repeat("─", inner)+"╯")
	return out
}

// Wrap breaks text into lines of at most width columns. If possible, it breaks a line after a space or a comma.
func Wrap(text string, width int) []string {
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

// Pad appends spaces to text up to width columns.
func Pad(text string, width int) string {
	return text + strings.Repeat(" ", max(width-utf8.RuneCountInString(text), 0))
}

// Ink colours text if On is true.
type Ink struct{ On bool }

// Paint returns text in the colour of the SGR code. It returns text unchanged if On is false.
func (i Ink) Paint(code, text string) string {
	if !i.On || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// The colours for Paint, as SGR codes (ECMA-48).
const (
	Bold       = "1"
	Dim        = "2"
	Red        = "31"
	Green      = "32"
	Yellow     = "33"
	BoldRed    = "1;31"
	BoldYellow = "1;33"
	BoldBlue   = "1;34"
)
