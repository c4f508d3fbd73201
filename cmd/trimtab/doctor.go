package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/doctor"
	"github.com/trimtab/trimtab/internal/report/status"
)

func newDoctor() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what prevents Trimtab from working on this node",
		Long: `Checks the runtime, its NRI settings and socket, the kubelet's static managers, the
cgroup files, what the hooks need, and the agent itself. The result of a check is ok, a
problem, or unknown. Each result says what was found, and if it is not ok, what to do.

The command only reads and needs no root. If it cannot read the files for a check, the
result of this check is unknown. The exit code is 1 if there is a problem. In a container,
mount the node's root directory and name the mount with --host-root; doctor then ignores
$TRIMTAB_CONFIG.`,
		Example: "  trimtab doctor\n  trimtab doctor --host-root /host -o yaml",
		Args:    cli.Arguments(0),
	}
	var o doctor.Options
	addNodeFlags(cmd, &o)
	cmd.Flags().StringVar(&o.ConfigFile, "config", "", "configuration `file`, a path on the node (default $"+configVariable+" or "+configFile+")")
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if o.HostRoot, err = filepath.Abs(o.HostRoot); err != nil {
			return &usageError{err}
		}
		if o.ConfigFile != "" && o.HostRoot == "/" { // if --host-root names another directory, the path is a path on the node, and here the file possibly does not exist
			if o.ConfigFile, err = filepath.Abs(o.ConfigFile); err != nil {
				return &usageError{err}
			}
			if _, err := os.Stat(o.ConfigFile); errors.Is(err, fs.ErrNotExist) {
				return &usageError{fmt.Errorf("--config: %w; name the agent's configuration file, or leave the flag out", err)}
			}
		}
		if o.ConfigFile == "" {
			o.ConfigFile = configFile
			if o.HostRoot == "/" { // if --host-root names another directory, $TRIMTAB_CONFIG is a path in this container, not on the node
				o.ConfigFile, _ = defaultConfigFile()
			}
		}
		r := doctor.Run(cmd.Context(), o)
		w := cmd.OutOrStdout()
		if err := out.PrintAs(w, "Diagnosis", r, func() error { return doctor.Render(w, r) }); err != nil {
			return err
		}
		if r.Problems > 0 {
			return fmt.Errorf("doctor found problems in %d of %d checks", r.Problems, len(r.Checks))
		}
		return nil
	}
	return cmd
}

// addNodeFlags adds the flags for the paths of the node's files and sockets. It also sets the functions with which
// doctor queries the agent and the kubelet.
func addNodeFlags(cmd *cobra.Command, o *doctor.Options) {
	cmd.Flags().StringVar(&o.HostRoot, "host-root", "/", "where the node's root directory is mounted")
	cmd.Flags().StringVar(&o.Endpoint, "runtime-endpoint", "", "CRI socket of the runtime (default cri.endpoint, or with attach: nri the usual sockets)")
	cmd.Flags().StringVar(&o.KubeletRoot, "kubelet-root-dir", "/var/lib/kubelet", "the kubelet's directory, as a path on the node")
	o.Ask, o.Specs, o.Grants = askStatus, agent.QuerySpecs, agent.QueryGrants
}

// askStatus asks the agent at socket for its state.
func askStatus(ctx context.Context, socket string) (n api.Node, err error) {
	err = withClient(ctx, socket, func(c *status.Client) error {
		n, err = c.Status(ctx)
		return err
	})
	return n, err
}
