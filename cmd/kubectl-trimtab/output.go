package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	tty "golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/trimtab/trimtab/internal/report/term"
)

// writeTable writes rows in aligned columns. It does not pad the last column.
func writeTable(w io.Writer, head string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, head)
	for _, r := range rows {
		for i, cell := range r {
			if r[i] = term.Clean(cell); r[i] == "" {
				r[i] = "-"
			}
		}
		if r[len(r)-1] == "-" { // an empty cell of the last column needs no dash
			r[len(r)-1] = ""
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(r, "\t"), "\t"))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

// cleanLines replaces terminal control characters in each line of a text.
func cleanLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = term.Clean(l)
	}
	return strings.Join(lines, "\n")
}

// formatAge formats the time since a start in the form of kubectl's column AGE, such as 5d3h. It returns "" for the
// zero time.
func formatAge(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return duration.HumanDuration(time.Since(since))
}

// asTerminal returns the stream as a file, and reports whether the stream is a terminal.
func asTerminal(stream any) (*os.File, bool) {
	f, isFile := stream.(*os.File)
	return f, isFile && tty.IsTerminal(int(f.Fd()))
}

// showProgress returns a function that shows on the terminal how many nodes have answered. It returns nil if standard
// error is not a terminal, or if there are fewer than 20 nodes.
func showProgress(cmd *cobra.Command, nodes int) func(int) {
	const many = 20
	w := cmd.ErrOrStderr()
	if _, ok := asTerminal(w); !ok || nodes < many {
		return nil
	}
	return func(done int) {
		fmt.Fprintf(w, "\r%d of %d nodes have answered", done, nodes)
		if done == nodes {
			fmt.Fprint(w, "\r\x1b[K")
		}
	}
}

// warn writes a warning to standard error.
func warn(cmd *cobra.Command, text string, args ...any) {
	fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+cleanLines(fmt.Sprintf(text, args...)))
}
