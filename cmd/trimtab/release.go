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

Values that another program has changed since are left and listed. What a container
was created with (environment, mounts, devices) stays with it.

The exit code is 1 if something could not be restored: the kernel refused it, the original
value is not known (paths.state was deleted), or a stored copy of the runtime still has a
value that the next update by the kubelet would write again. The command names each; call
it again to try again.`,
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
