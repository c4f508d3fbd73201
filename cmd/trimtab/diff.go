package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/nridiff"
	"github.com/trimtab/trimtab/internal/report/term"
	"github.com/trimtab/trimtab/internal/sim"
)

func newDiff() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Show what NRI plugins change in each new container",
		Long: `Registers observers with the runtime's NRI: by default one before all other plugins
and one after them. For each container that is created it shows what the plugins
between two observers changed: variables, mounts, devices, resources, annotations.
With --indices you can register more observers, to see the changes of single plugins. The
observers change no container. The command runs until interrupted, or for --duration.`,
		Example: "  trimtab diff\n  trimtab diff --indices 00,50,99 --duration 1m -o yaml",
		Args:    cli.Arguments(0),
	}
	socket := cmd.Flags().String("nri-socket", "", "NRI socket of the runtime (default nri.socket of the configuration)")
	file := addConfig(cmd)
	indices := cmd.Flags().StringSlice("indices", []string{"00", "99"}, "indices of the observers among the NRI plugins, two digits each")
	duration := cmd.Flags().Duration("duration", 0, "stop after this time; 0 means never")
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if *duration > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, *duration)
			defer stop()
		}
		sim.SetNRILog(slog.New(slog.DiscardHandler))
		w := cmd.OutOrStdout()
		err := nridiff.Run(ctx, nridiff.Options{
			Socket: cmp.Or(*socket, nriSocket(*file)), Indices: *indices,
			OnResult: func(r nridiff.Result) error { return showDiff(w, out.String(), &r) },
			OnReady:  func() { fmt.Fprintln(cmd.ErrOrStderr(), "observing; interrupt (Ctrl-C) to stop") },
		})
		if bad := (*nridiff.IndicesError)(nil); errors.As(err, &bad) {
			return &usageError{fmt.Errorf("--indices: %w", err)}
		}
		return err
	}
	return cmd
}

// nriSocket returns the value of the key nri.socket in a configuration file. The parameter flag is the path in the flag
// --config; if it is "", nriSocket reads the default configuration file. If the file cannot be read or lacks the key,
// nriSocket returns the key's default.
func nriSocket(flag string) string {
	usual, _ := defaultConfigFile()
	var c struct {
		NRI struct {
			Socket string `yaml:"socket"`
		} `yaml:"nri"`
	}
	if text, err := os.ReadFile(cmp.Or(flag, usual)); err == nil {
		_ = yaml.Unmarshal(text, &c) // errors are ignored here: 'trimtab config check' reports them
	}
	return cmp.Or(c.NRI.Socket, config.Default().NRI.Socket)
}

// showDiff prints which settings of one container the NRI plugins changed that run between two observers of the command
// diff. The observers are NRI plugins that change nothing.
func showDiff(w io.Writer, format string, r *nridiff.Result) error {
	switch format {
	case "json":
		b, err := json.Marshal(r)
		if err != nil {
			return err
		}
		return cli.Write(w, append(b, '\n'))
	case "yaml":
		b, err := kyaml.Marshal(r)
		if err != nil {
			return err
		}
		return cli.Write(w, append([]byte("---\n"), b...))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s/%s, plugins with index %s to %s: %s\n", term.Clean(r.Pod), term.Clean(r.Container), r.From, r.To, term.Count(len(r.Changes), "change"))
	for _, c := range r.Changes {
		fmt.Fprintf(t, "  %s\t%s\t->\t%s\n", term.Clean(c.Setting), dashIfEmpty(c.Before), dashIfEmpty(c.After))
	}
	return t.Flush()
}
