package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/recording"
	"github.com/trimtab/trimtab/internal/report/term"
)

func newReplay() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay RECORDING",
		Short: "Decide recorded events again, and show which decisions would differ",
		Long: `Reads a file that 'trimtab events --record' wrote, decides its events again with this
program, and shows each value of a container or pod that would differ. With --config
it decides by another configuration. It needs no agent and changes nothing.

A recording also has the pod specs, the answers of hook servers, and the records that the
agent had stored with containers. Another configuration does not change these. The exit
code is 0 if all decisions are the same, byte for byte, 1 if some differ, and 2 if the
file is no recording.`,
		Example: "  trimtab events --record node.jsonl\n  trimtab replay node.jsonl --config new.yaml",
		Args:    cli.Arguments(1, "RECORDING"),
	}
	file := cmd.Flags().String("config", "", "configuration `file` to decide by (default: the recorded one)")
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var another *config.Config
		if *file != "" {
			text, err := os.ReadFile(*file)
			if err != nil {
				return &usageError{fmt.Errorf("--config: %w", err)}
			}
			c, err := config.Parse(*file, text)
			if err != nil {
				return &usageError{withAdvice(*file, err)}
			}
			another = &c
		}
		in, err := openInput(args[0], cmd.InOrStdin())
		if err != nil {
			return &usageError{err}
		}
		defer in.Close()
		defer debug.SetGCPercent(debug.SetGCPercent(recording.GCPercent))
		report, err := agent.Replay(in, another)
		if err != nil {
			return &usageError{fmt.Errorf("%s: %w", args[0], err)}
		}
		w := cmd.OutOrStdout()
		if err := out.PrintAs(w, "Replayed", report, func() error { return renderReplay(w, &report) }); err != nil {
			return err
		}
		if !report.Same() {
			return errors.New("some decisions would differ from the recorded decisions")
		}
		return nil
	}
	return cmd
}

// openInput opens a file, or returns standard input if file is "-".
func openInput(file string, in io.Reader) (io.ReadCloser, error) {
	if file == "-" {
		return io.NopCloser(in), nil
	}
	return os.Open(file)
}

// renderReplay prints a report as a table.
func renderReplay(w io.Writer, r *recording.Report) error {
	if len(r.Differences) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "EVENT\tOWNER\tSETTING\tRECORDED\tREPLAYED\tEVENTS\tWHY")
		for _, d := range r.Differences {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", eventName(&d), term.Clean(d.Owner), term.Clean(d.Setting), dashIfEmpty(d.Recorded), dashIfEmpty(d.Replayed), d.Events, dashIfEmpty(d.Why))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	begin := ""
	if slices.ContainsFunc(r.Differences, func(d recording.Difference) bool { return d.Event == "" }) {
		begin = "; decisions about containers that ran at the start would also differ"
	}
	fmt.Fprintf(w, "%s, %d with a different decision than recorded%s\n", term.Count(int(r.Events), "event"), r.Differing, begin)
	if r.Lost > 0 {
		fmt.Fprintf(w, "missing in the recording: %s; decisions about later events may differ for this reason\n", term.Count(int(r.Lost), "event"))
	}
	if r.WithoutEnv {
		fmt.Fprintln(w, "the recording has no values of environment variables: decisions that depend on them may differ")
	}
	return nil
}

// eventName returns the number and the kind of the event at which a replay differs from the recording.
func eventName(d *recording.Difference) string {
	if d.Event == "" {
		return "at the start"
	}
	return fmt.Sprintf("%d %s", d.Seq, d.Event)
}

func dashIfEmpty(s string) string {
	if s == "" {
		return "-"
	}
	return term.Clean(s)
}
