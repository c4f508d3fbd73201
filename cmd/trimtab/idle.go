package main

import (
	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
)

// newIdle returns the command idle. It keeps a pod running that has no agent. Users run other commands in that pod.
func newIdle() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "idle",
		Short: "Keep a pod running in which kubectl trimtab reaches an agent that is not a pod",
		Long: `Does nothing until it is ended. The chart with 'attach: none' runs it in a pod on nodes
whose agent is a systemd unit: the pod has the agent's status socket, and 'kubectl
trimtab' runs the other commands in it. It reads no file; 'kubectl trimtab' takes the
path in --config from the pod.`,
		Example: "  trimtab idle --config /etc/trimtab/config.yaml",
		Args:    cli.Arguments(0),
	}
	addConfig(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		<-cmd.Context().Done()
		return nil
	}
	return cmd
}
