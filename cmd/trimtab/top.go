package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/report/top"
	"github.com/trimtab/trimtab/internal/report/usage"
)

// The smallest and the largest width of a picture, in columns.
const minWidth, maxWidth = 40, 1000

func newTop() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the node: the load of each CPU, its owner, and waiting work",
		Long: `Shows the node's CPUs by NUMA node, how busy each has been since the last reading and
who owns it, and the kernel's pressure figures. Below are the pods that own CPUs and the
pools, each with the CPUs that its containers have used. Then each container has a line:
the CPUs that it has used, its limit, the share of periods in which the limit throttled
it, and the share of the time in which one of its tasks waited for a CPU. Problems are
coloured. The marks mean the same as in 'trimtab status'. Keys: q ends, space pauses, s
sorts by name or by use.

Without a terminal, or with --once, it reads twice and prints one picture. The width of
the picture is --width, or else COLUMNS, or else the terminal's width, or else 100
columns.`,
		Example: "  trimtab top\n  trimtab top --interval 5s\n  trimtab top --once --width 160",
		Args:    cli.Arguments(0),
	}
	socket := addSocket(cmd)
	every := cli.Interval(cmd, "time between two readings, at least 100ms")
	once := cmd.Flags().Bool("once", false, "print one picture and exit")
	wide := cmd.Flags().Int("width", 0, "width in `columns`, without a terminal or with --once (default COLUMNS, or the terminal's width)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *every < 100*time.Millisecond {
			return &usageError{fmt.Errorf("--interval %v: want 100ms or more", *every)}
		}
		if *wide != 0 && (*wide < minWidth || *wide > maxWidth) {
			return &usageError{fmt.Errorf("--width %d: want %d to %d columns", *wide, minWidth, maxWidth)}
		}
		return withClient(cmd.Context(), *socket, func(c *status.Client) error {
			out := cmd.OutOrStdout()
			ask := func(ctx context.Context) (api.Node, api.Usage, error) { return sampleOf(ctx, c) }
			m := top.New(cmd.Context(), ask, os.DirFS("/proc"), *every, useColors(out))
			width, live := terminalWidth(out)
			if *once || !live {
				f, err := sampleTwice(cmd.Context(), m, ask, *every)
				if err != nil {
					return err
				}
				f.Width = cmp.Or(*wide, columnsVariable(), width)
				return cli.Write(out, []byte(f.String()+"\n"))
			}
			_, err := tea.NewProgram(m, tea.WithContext(cmd.Context()), tea.WithOutput(out), tea.WithInput(cmd.InOrStdin())).Run()
			if errors.Is(err, tea.ErrProgramKilled) { // a signal has ended the program
				return nil
			}
			return err
		})
	}
	return cmd
}

// sampleTwice takes two samples of the node's state and of the load of its CPUs, and returns the picture of what
// happened between the two. The parameter between is the pause from the first sample to the second.
func sampleTwice(ctx context.Context, m top.Model, ask top.Ask, between time.Duration) (top.Frame, error) {
	for i := range 2 {
		if i > 0 {
			select {
			case <-ctx.Done():
				return top.Frame{}, ctx.Err()
			case <-time.After(between):
			}
		}
		node, used, err := ask(ctx)
		if err != nil {
			return top.Frame{}, err
		}
		reading, err := usage.Read(os.DirFS("/proc"))
		if err != nil {
			return top.Frame{}, fmt.Errorf("read the load of the CPUs: %w", err)
		}
		m = m.WithSample(node, used, reading, nil)
	}
	return m.Frame(), nil
}

// sampleOf asks the agent for the state of the node and for the CPU time that its containers have used. An older agent
// does not report this CPU time; then sampleOf returns only the state.
func sampleOf(ctx context.Context, c *status.Client) (api.Node, api.Usage, error) {
	node, err := c.Status(ctx)
	if err != nil {
		return node, api.Usage{}, err
	}
	used, err := c.Usage(ctx)
	if refused := (*status.RefusedError)(nil); errors.As(err, &refused) {
		return node, api.Usage{}, nil
	}
	return node, used, err
}

// columnsVariable returns the width in $COLUMNS, or 0 if the variable is not set or is no valid width.
func columnsVariable() int {
	n, err := strconv.Atoi(os.Getenv("COLUMNS"))
	if err != nil || n < minWidth || n > maxWidth {
		return 0
	}
	return n
}
