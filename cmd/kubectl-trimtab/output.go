package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// format is the value of an -o flag.
type format struct {
	is      string
	choices []string
}

// addFormat gives a command an -o flag; the first choice is the default.
func addFormat(cmd *cobra.Command, choices ...string) *format {
	f := &format{is: choices[0], choices: choices}
	cmd.Flags().VarP(f, "output", "o", "what to print: "+strings.Join(choices, ", "))
	// The flag was made in the line above.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
	return f
}

func (f *format) String() string { return f.is }
func (f *format) Type() string   { return "format" }

func (f *format) Set(s string) error {
	for _, c := range f.choices {
		if c == s {
			f.is = s
			return nil
		}
	}
	return fmt.Errorf("want %s", strings.Join(f.choices, " or "))
}

// print writes v for machines, or with people for people.
func (f *format) print(w io.Writer, v any, people func() error) error {
	var out []byte
	var err error
	switch f.is {
	case "json":
		out, err = json.MarshalIndent(v, "", "  ")
		out = append(out, '\n')
	case "yaml":
		out, err = yaml.Marshal(v)
	default:
		return people()
	}
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return write(w, out)
}

func write(w io.Writer, out []byte) error {
	if _, err := w.Write(out); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// table writes rows in columns; the last column is not padded.
func table(w io.Writer, head string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, head)
	for _, r := range rows {
		for i, cell := range r {
			if r[i] = clean(cell); r[i] == "" {
				r[i] = "-"
			}
		}
		if r[len(r)-1] == "-" { // a note: nothing is not worth a mark
			r[len(r)-1] = ""
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(r, "\t"), "\t"))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// clean keeps text of nodes from moving the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// age is a time as kubectl prints ages.
func age(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return duration.HumanDuration(time.Since(since))
}

// terminal says whether a stream is one.
func terminal(stream any) (*os.File, bool) {
	f, isFile := stream.(*os.File)
	return f, isFile && term.IsTerminal(int(f.Fd()))
}

// progress shows on a terminal how many of many nodes have answered; nil shows nothing.
func progress(cmd *cobra.Command, nodes int) func(int) {
	const many = 20
	w := cmd.ErrOrStderr()
	if _, ok := terminal(w); !ok || nodes < many {
		return nil
	}
	return func(done int) {
		fmt.Fprintf(w, "\rasked %d of %d nodes", done, nodes)
		if done == nodes {
			fmt.Fprint(w, "\r\x1b[K")
		}
	}
}

// warn writes a line to standard error.
func warn(cmd *cobra.Command, text string, args ...any) {
	fmt.Fprintf(cmd.ErrOrStderr(), "warning: "+text+"\n", args...)
}
