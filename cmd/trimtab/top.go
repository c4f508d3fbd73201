package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/report/top"
	"github.com/trimtab/trimtab/internal/report/usage"
)

func newTop() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the node: how busy each CPU is, who may use it, what waits",
		Long: `Shows the node's CPUs by NUMA node, how busy each has been since the last reading and
who owns it, the pods that own CPUs and the pools with their recent use, and the
kernel's pressure figures. Marks are those of 'trimtab status'. Keys: q ends, space
pauses, s sorts by name or by use.

Without a terminal, or with --once, it reads twice and prints one picture.`,
		Example: "  trimtab top\n  trimtab top --interval 5s\n  trimtab top --once",
		Args:    cli.Arguments(0),
	}
	socket := addSocket(cmd)
	every := cli.Interval(cmd, "time between two readings, at least 100ms")
	once := cmd.Flags().Bool("once", false, "print one picture and end")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *every < 100*time.Millisecond {
			return &misuse{fmt.Errorf("--interval %v: want 100ms or more", *every)}
		}
		return withClient(cmd.Context(), *socket, func(c *status.Client) error {
			out := cmd.OutOrStdout()
			ask := func(ctx context.Context) (api.Node, error) { return c.Status(ctx) }
			m := top.New(cmd.Context(), ask, os.DirFS("/proc"), *every, colors(out))
			width, live := terminal(out)
			if *once || !live {
				f, err := printOnce(cmd.Context(), m, ask, *every)
				if err != nil {
					return err
				}
				f.Width = width
				return cli.Write(out, []byte(f.String()+"\n"))
			}
			_, err := tea.NewProgram(m, tea.WithContext(cmd.Context()), tea.WithOutput(out), tea.WithInput(cmd.InOrStdin())).Run()
			if errors.Is(err, tea.ErrProgramKilled) { // by a signal
				return nil
			}
			return err
		})
	}
	return cmd
}

// printOnce takes two samples.
func printOnce(ctx context.Context, m top.Model, ask top.Ask, between time.Duration) (top.Frame, error) {
	for i := range 2 {
		if i > 0 {
			select {
			case <-ctx.Done():
				return top.Frame{}, ctx.Err()
			case <-time.After(between):
			}
		}
		node, err := ask(ctx)
		if err != nil {
			return top.Frame{}, err
		}
		reading, err := usage.Read(os.DirFS("/proc"))
		if err != nil {
			return top.Frame{}, fmt.Errorf("how busy the CPUs are: %w", err)
		}
		m = m.Seen(node, reading, nil)
	}
	return m.Frame(), nil
}
