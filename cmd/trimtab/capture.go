package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology/captured"
)

func newCapture() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "capture [FILE.tar.gz]",
		Short: "Save the files that describe this node's CPUs and memory, to simulate the node elsewhere",
		Long: `Packs the files of /sys and /proc that say what the machine is: CPUs, cores, caches, NUMA
nodes, memory, huge pages, and the NUMA nodes of PCI devices. 'plan --node', 'sim serve
--agent' and 'sim run --node' simulate the node of an archive. The file name - means
standard output.

The archive has no names of hosts, users or pods, no serial numbers and no network
addresses: it has only files of a fixed list. No agent is needed.`,
		Example: "  trimtab capture node-7.tar.gz\n  trimtab plan --node node-7.tar.gz pods.yaml\n  trimtab sim serve --agent node-7.tar.gz",
		Args:    cli.Arguments(0, "FILE.tar.gz"),
	}
	host := cmd.Flags().String("host-root", "/", "where the node's root `directory` is mounted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file := "trimtab-capture.tar.gz"
		if len(args) > 0 {
			file = args[0]
		}
		if file == "-" {
			_, err := captured.Pack(cmd.OutOrStdout(), os.DirFS(*host))
			return err
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return &usageError{fmt.Errorf("write the archive: %w", err)}
		}
		n, err := captured.Pack(f, os.DirFS(*host))
		if err := errors.Join(err, f.Close()); err != nil {
			return errors.Join(err, os.Remove(file))
		}
		fmt.Fprintf(cmd.OutOrStdout(), "wrote %s: it has %d files of this node\n", file, n)
		return nil
	}
	return cmd
}

// isArchive reports whether a file is a gzip file, as the archives of 'trimtab capture' are.
func isArchive(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 2)
	_, err = io.ReadFull(f, head)
	return err == nil && captured.IsArchive(head)
}

// capturedNode returns the node in an archive of 'trimtab capture'; nil if the file is not an archive.
func capturedNode(file string) (*captured.Node, error) {
	if !isArchive(file) {
		return nil, nil //nolint:nilnil // no archive is no error
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, &usageError{err}
	}
	defer f.Close()
	n, err := captured.Open(f)
	if err != nil {
		return nil, &usageError{fmt.Errorf("%s: %w", file, err)}
	}
	return n, nil
}

// serveCapturedNode runs an agent on the simulated node of an archive until ctx ends. This node has no pods.
func serveCapturedNode(ctx context.Context, file string, out io.Writer, to serveFlags) error {
	from, err := capturedNode(file)
	if err != nil {
		return err
	}
	s := &scenario.Scenario{Name: "captured node", Node: scenario.Node{CPUs: "1c", Cgroup: "v2", Driver: string(sim.Systemd)}}
	return playAndServe(ctx, s, out, to, func(o *sim.RunOptions) { o.Captured = from })
}
