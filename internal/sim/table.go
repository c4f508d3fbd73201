package sim

import (
	"strings"
	"unicode/utf8"

	"github.com/trimtab/trimtab/internal/report/term"
)

// cell is one field of a table. A changed field is highlighted.
type cell struct {
	text    string
	changed bool
}

// tableRow is one row of a table, and the remarks below this row.
type tableRow struct {
	cells   []cell
	remarks []string
}

// column has the heading of a column and the maximum width of its fields.
type column struct {
	name     string
	maxWidth int
}

// layOutTable lays out rows under the headings of their columns. It leaves out empty columns and wraps long fields.
func layOutTable(columns []column, rows []tableRow, width int, c term.Ink) term.Block {
	widths := columnWidths(columns, rows, c)
	out := term.Block{Width: width}
	var head, rule strings.Builder
	for i, col := range columns {
		if widths[i] > 0 {
			head.WriteString(term.Pad(col.name, widths[i]) + "  ")
			rule.WriteString(strings.Repeat("─", widths[i]) + "  ")
		}
	}
	out.Lines = append(out.Lines, c.Paint(term.Bold, head.String()), c.Paint(term.Dim, rule.String()))
	for _, r := range rows {
		out.Lines = append(out.Lines, layOutRow(r.cells, widths, c)...)
		for _, text := range r.remarks {
			for n, l := range term.Wrap(text, width-4) {
				lead := "  └ "
				if n > 0 {
					lead = "    "
				}
				out.Lines = append(out.Lines, c.Paint(term.Dim, lead)+c.Paint(remarkColor(text), l))
			}
		}
	}
	return out
}

// remarkColor returns the color of a remark. Problems are highlighted.
func remarkColor(text string) string {
	if strings.HasPrefix(text, "!") {
		return term.BoldYellow
	}
	return term.Dim
}

// columnWidths returns the width of each column; 0 for a column that is empty in all rows.
func columnWidths(columns []column, rows []tableRow, c term.Ink) []int {
	widths := make([]int, len(columns))
	for i, col := range columns {
		for _, r := range rows {
			for line := range strings.SplitSeq(r.cells[i].text, "\n") {
				widths[i] = max(widths[i], utf8.RuneCountInString(line)+markWidth(r.cells[i], c))
			}
		}
		if widths[i] > 0 {
			widths[i] = min(max(widths[i], utf8.RuneCountInString(col.name)), col.maxWidth)
		}
	}
	return widths
}

// markWidth returns the width of the star that marks a changed field in output without colors; 0 for other fields.
func markWidth(f cell, c term.Ink) int {
	if f.changed && !c.On && f.text != "" {
		return 1
	}
	return 0
}

// layOutRow returns the lines of a row. The row has several lines if a field is longer than its column is wide.
func layOutRow(fields []cell, widths []int, c term.Ink) []string {
	wrapped := make([][]string, len(fields))
	height := 1
	for i, f := range fields {
		text := f.text
		if markWidth(f, c) > 0 {
			text += "*"
		}
		if widths[i] > 0 {
			wrapped[i] = term.Wrap(text, widths[i])
			height = max(height, len(wrapped[i]))
		}
	}
	var lines []string
	for n := range height {
		var b strings.Builder
		for i, f := range fields {
			if widths[i] == 0 {
				continue
			}
			text := ""
			if n < len(wrapped[i]) {
				text = wrapped[i][n]
			}
			code := ""
			if f.changed {
				code = term.BoldYellow
			}
			b.WriteString(c.Paint(code, text) + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+2))
		}
		lines = append(lines, b.String())
	}
	return lines
}
