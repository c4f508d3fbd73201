package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	tty "golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/fleet"
	"github.com/trimtab/trimtab/internal/report/term"
)

// newTop returns the command top, which shows the load of a node live.
func newTop(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top NODE",
		Short: "Watch a node: the load of each CPU, the pod that owns the CPU, and tasks that wait",
		Long: `Runs 'trimtab top' in the agent's pod and shows its screen on this terminal. Keys: q ends,
space pauses, s sorts by name or by use. Without a terminal, or with --once, it prints one
picture and ends.`,
		Example: "  kubectl trimtab top worker-1\n  kubectl trimtab top worker-1 --once",
		Args:    cli.Arguments(1, "NODE"),
	}
	every := cli.Interval(cmd, "time between two readings, at least 100ms")
	once := cmd.Flags().Bool("once", false, "print one picture and exit")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ask := []string{"top", "--every", every.String()}
		in, inIs := asTerminal(cmd.InOrStdin())
		out, outIs := asTerminal(cmd.OutOrStdout())
		if *once || !inIs || !outIs {
			return p.relay(cmd, args[0], nil, append(ask, "--once")...)
		}
		c, a, err := p.connectToNode(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return onTerminal(cmd.Context(), in, out, func(sizes remotecommand.TerminalSizeQueue) error {
			screen := term.NewScreen(out) // removes control sequences, because the output of a node is not trusted
			err := c.Run(cmd.Context(), a, ask, fleet.Streams{In: in, Out: screen, Sizes: sizes})
			return errors.Join(err, screen.Close())
		})
	}
	return cmd
}

// onTerminal runs f while the terminal is in raw mode, so that the agent's program gets each key at once. It then
// restores the terminal.
func onTerminal(ctx context.Context, in, out *os.File, f func(remotecommand.TerminalSizeQueue) error) error {
	before, err := tty.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	defer func() { _ = tty.Restore(int(in.Fd()), before) }()
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	defer signal.Stop(changed)
	err = f(&terminalSizes{ctx: ctx, out: out, resized: changed})
	var exit *fleet.ExitError
	if errors.As(err, &exit) {
		return &printedError{exit.Code} // the agent's program has printed the reason
	}
	return err
}

// terminalSizes is a TerminalSizeQueue: it returns the size of a terminal at the start and after each change.
type terminalSizes struct {
	ctx     context.Context //nolint:containedctx // Next has no context parameter
	out     *os.File
	resized chan os.Signal
	started bool // Next was called before
}

// Next waits for a change of the terminal's size and returns the new size. The first call does not wait. Next returns
// nil when ctx ends, or if the size cannot be read.
func (s *terminalSizes) Next() *remotecommand.TerminalSize {
	if s.started {
		select {
		case <-s.resized:
		case <-s.ctx.Done():
			return nil
		}
	}
	s.started = true
	w, h, err := tty.GetSize(int(s.out.Fd()))
	if err != nil {
		return nil
	}
	return &remotecommand.TerminalSize{Width: uint16(w), Height: uint16(h)} //nolint:gosec // terminals are small
}
