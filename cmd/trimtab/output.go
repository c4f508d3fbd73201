package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
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

// terminal says whether w is a terminal, and how wide.
func terminal(w io.Writer) (width int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Col), true
}

// colors says whether to use colour on w: on terminals, unless the user asked
// programs not to (no-color.org).
func colors(w io.Writer) bool {
	_, ok := terminal(w)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
