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
		if r[len(r)-1] == "-" { // an empty note needs no dash
			r[len(r)-1] = ""
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(r, "\t"), "\t"))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// cleanLines is term.Clean for text with several lines.
func cleanLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = term.Clean(l)
	}
	return strings.Join(lines, "\n")
}

// formatAge formats a time as kubectl formats ages.
func formatAge(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return duration.HumanDuration(time.Since(since))
}

// asTerminal returns the file of a stream, and reports whether it is a terminal.
func asTerminal(stream any) (*os.File, bool) {
	f, isFile := stream.(*os.File)
	return f, isFile && tty.IsTerminal(int(f.Fd()))
}

// showProgress returns a function that shows on the terminal how many nodes have answered. It returns nil if standard
// error is no terminal, or if there are few nodes.
func showProgress(cmd *cobra.Command, nodes int) func(int) {
	const many = 20
	w := cmd.ErrOrStderr()
	if _, ok := asTerminal(w); !ok || nodes < many {
		return nil
	}
	return func(done int) {
		fmt.Fprintf(w, "\rasked %d of %d nodes", done, nodes)
		if done == nodes {
			fmt.Fprint(w, "\r\x1b[K")
		}
	}
}

// warn writes a warning to standard error.
func warn(cmd *cobra.Command, text string, args ...any) {
	fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+cleanLines(fmt.Sprintf(text, args...)))
}
