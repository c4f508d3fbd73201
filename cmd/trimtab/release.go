package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
)

func newRelease() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release",
		Short: "Restore what Trimtab changed in the kernel, before you uninstall it",
		Long: `Asks the running agent to restore every value that it changed in the kernel and in the
runtime's stored copies, and to decide nothing more until its next start. Without a
running agent, the command restores kernel values from the files in paths.state; the
runtime's stored copies then stay as they are.

If another program has changed a value after Trimtab, the command leaves this value and
lists it. A container keeps the environment, mounts and devices of its creation.

The exit code is 1 if a value could not be restored, for one of three reasons. The kernel
refused the write. The original value is not known, because paths.state was deleted. A
stored copy of the runtime still has a value of Trimtab, and the kubelet's next update
would write this value again. The command lists each such value. To try again, run the
command again.`,
		Example: "  trimtab release\n  trimtab release -o json | jq .left",
		Args:    cli.Arguments(0),
	}
	socket := addSocket(cmd)
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		file, err := cmd.Flags().GetString("config")
		if err != nil {
			return err
		}
		c, _, err := loadConfig(file)
		if err != nil {
			return err
		}
		var r api.Released
		err = withClient(cmd.Context(), *socket, func(client *status.Client) error {
			r, err = client.Release(cmd.Context())
			return err
		})
		if isNoAgent(err) {
			r, err = agent.ReleaseAlone(c)
		}
		if err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		if err := out.PrintAs(w, "Released", r, func() error { return status.RenderReleased(w, r) }); err != nil {
			return err
		}
		if n := r.Unrestored(); n > 0 {
			return fmt.Errorf("release: %d values or containers could not be restored", n)
		}
		return nil
	}
	return cmd
}

// isNoAgent reports whether an error means that no agent runs.
func isNoAgent(err error) bool {
	var u *status.UnreachableError
	return errors.As(err, &u) && (errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED))
}
