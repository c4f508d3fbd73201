package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sleep"
)

// containerClasses are the classes of containers, as the table of containers shows them.
var containerClasses = []string{"system", "dedicated", "shared", "reclaimed", "none"}

// statusFlags are the flags of the command status.
type statusFlags struct {
	svg      string // the file for a drawing of the node; "" for no drawing
	cpu      string // a number; "" for the whole node
	options  status.Options
	watch    bool
	selector string        // selects pods by their labels
	interval time.Duration // between two prints, with watch
	wait     string        // ready, or "" for no wait
	timeout  time.Duration // of the wait
}

func newStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the agent on this node does: attachment, CPUs, containers",
		Long: `Asks the running agent what is in force: its configuration, the attachment to the
runtime, which pod owns which CPUs, and one line for each container. The first lines name
a refused configuration file, and the values that could not be applied.

With --watch it prints the state again and again. With --wait=ready it first waits until
the agent is attached to a runtime and has applied its decisions to the running
containers. -o wide shows limits in the form of the kernel files, and for each container
its QoS class, its id and why it has these CPUs. --cpu N shows one CPU instead of the node:
the owner of the CPU or its pools, and which containers may run there.`,
		Example: `  trimtab status
  trimtab status --cpu 7
  trimtab status -n shop --class dedicated
  trimtab status -l app=web
  trimtab status --wait=ready --timeout 2m
  trimtab status -o json | jq .unapplied
  trimtab status --svg node.svg`,
		Args: cli.Arguments(0),
	}
	socket := addSocket(cmd)
	out := cli.AddFormat(cmd, "table", "wide", "json", "yaml")
	f := &statusFlags{}
	f.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(cmd); err != nil {
			return &usageError{err}
		}
		if f.wait != "" {
			if err := awaitReady(cmd.Context(), *socket, f.timeout); err != nil {
				return err
			}
		}
		return withClient(cmd.Context(), *socket, func(c *status.Client) error {
			return f.show(cmd.Context(), c, cmd.OutOrStdout(), out)
		})
	}
	return cmd
}

// add adds the flags to a command.
func (f *statusFlags) add(cmd *cobra.Command) {
	addSVGFlag(cmd, &f.svg)
	cmd.Flags().StringVar(&f.cpu, "cpu", "", "show which pod owns the CPU with this `number`, and which containers may run there")
	cmd.Flags().StringVarP(&f.options.Namespace, "namespace", "n", "", "list only containers in this namespace")
	cmd.Flags().StringVar(&f.options.Class, "class", "", "list only the containers of this class: system, dedicated, shared, reclaimed or none")
	cmd.Flags().StringVarP(&f.selector, "selector", "l", "", "list only the containers of pods with these labels, such as app=web,tier!=test")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "print the state repeatedly, until interrupted")
	cmd.Flags().DurationVar(&f.interval, "interval", 2*time.Second, "time between two prints of --watch, at least 100ms")
	cmd.Flags().StringVar(&f.wait, "wait", "", "wait for this state first: ready")
	cmd.Flags().DurationVar(&f.timeout, "timeout", time.Minute, "how long --wait may take")
	completeValues(cmd, map[string][]string{"class": containerClasses, "wait": {"ready"}})
	_ = cmd.RegisterFlagCompletionFunc("namespace", completeNamespaces)
}

// check returns an error for invalid flags and for flags that exclude each other. It also parses --selector.
func (f *statusFlags) check(cmd *cobra.Command) error {
	switch {
	case f.wait != "" && f.wait != "ready":
		return fmt.Errorf("--wait=%s: the only state to wait for is ready", f.wait)
	case f.wait == "" && cmd.Flags().Changed("timeout"):
		return errors.New("--timeout can only be used with --wait")
	case !f.watch && cmd.Flags().Changed("interval"):
		return errors.New("--interval can only be used with --watch")
	case f.interval < 100*time.Millisecond:
		return fmt.Errorf("--interval %v: want 100ms or more", f.interval)
	case f.watch && f.svg != "":
		return errors.New("--watch and --svg exclude each other")
	case f.cpu != "" && (f.svg != "" || slices.Contains([]string{"json", "yaml"}, cmd.Flag("output").Value.String())):
		return errors.New("--cpu is for tables: leave out --svg and -o json|yaml; -o json has the CPUs of all owners, pools and containers")
	}
	if f.options.Class != "" && !slices.Contains(containerClasses, f.options.Class) {
		return fmt.Errorf("--class %s: want one of %s", f.options.Class, strings.Join(containerClasses, ", "))
	}
	if f.selector == "" {
		return nil
	}
	selected, err := labels.Parse(f.selector)
	if err != nil {
		return fmt.Errorf("--selector %s: %w", f.selector, err)
	}
	f.options.Matches = func(of map[string]string) bool { return selected.Matches(labels.Set(of)) }
	return nil
}

// show prints the state of the node. With --watch it prints the state again after each interval, until ctx ends.
func (f *statusFlags) show(ctx context.Context, c *status.Client, w io.Writer, out *cli.Format) error {
	f.options.Color, f.options.Wide = useColors(w), out.String() == "wide"
	width, live := terminalWidth(w)
	f.options.Width = width
	for {
		n, err := c.Status(ctx)
		if f.watch && ctx.Err() != nil {
			return nil //nolint:nilerr // the user has interrupted the command
		}
		if err != nil {
			return err
		}
		if f.svg != "" {
			return drawNodeToFile(f.svg, n)
		}
		if f.watch && live {
			if err := cli.Write(w, []byte("\x1b[H\x1b[2J")); err != nil { // move the cursor to the top left, and clear the screen (ECMA-48: CUP, ED)
				return err
			}
		}
		f.options.Now = time.Now()
		if err := out.PrintAs(w, "NodeStatus", n, func() error { return f.render(w, n) }); err != nil || !f.watch {
			return err
		}
		if !sleep.For(ctx, f.interval) {
			return nil
		}
	}
}

// render prints the state of a node, or of one of its CPUs.
func (f *statusFlags) render(w io.Writer, n api.Node) error {
	if f.cpu == "" {
		return status.RenderStatus(w, n, f.options)
	}
	id, err := strconv.ParseUint(f.cpu, 10, 16)
	if err != nil {
		return &usageError{fmt.Errorf("--cpu %s: want the number of a CPU, such as 7", f.cpu)}
	}
	if err := status.RenderCPU(w, n, int(id), f.options); err != nil {
		return &usageError{fmt.Errorf("--cpu %s: %w", f.cpu, err)}
	}
	return nil
}

// awaitReady waits until an agent answers at a socket and reports that it is ready, at most for timeout.
func awaitReady(ctx context.Context, socket string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	for {
		err := withClient(ctx, socket, func(c *status.Client) error {
			n, err := c.Status(ctx)
			if err == nil && n.NotReady != "" {
				return fmt.Errorf("the agent is not ready: %s", n.NotReady)
			}
			return err
		})
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if !sleep.For(ctx, 100*time.Millisecond) {
			return fmt.Errorf("waited %v for the agent to be ready: %w", timeout, last)
		}
	}
}

// addSVGFlag adds the flag --svg to a command.
func addSVGFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "svg", "", "draw the node's CPUs and who may use them to this SVG `file`; - is standard output")
	// This fails only if the flag does not exist, and the line above has added it.
	_ = cmd.MarkFlagFilename("svg", "svg")
}

// drawNodeToFile draws a node to a file, or to standard output if file is "-". It writes nothing if file is "".
func drawNodeToFile(file string, n api.Node) error {
	var b bytes.Buffer
	if err := status.SVG(&b, n, time.Now()); err != nil || file == "" {
		return err
	}
	if file == "-" {
		return cli.Write(os.Stdout, b.Bytes())
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("draw the node: %w", err)
	}
	return nil
}

// withClient calls f with a client of the agent at socket.
func withClient(ctx context.Context, socket string, f func(*status.Client) error) error {
	c, err := status.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}
