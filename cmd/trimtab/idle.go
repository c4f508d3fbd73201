package main

import (
	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
)

// newIdle returns the command idle, which does nothing until it is ended. It is the main process of a pod on a node
// whose agent runs outside of pods. Users reach that agent by other commands that they run in this pod.
func newIdle() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "idle",
		Short: "Keep a pod running in which kubectl trimtab reaches an agent that runs outside of pods",
		Long: `Does nothing until it is ended. The chart with 'attach: none' runs it in a pod on nodes
whose agent is a systemd unit. The pod has the agent's status socket, and 'kubectl
trimtab' runs other commands in this pod. The command idle does not read the file in
--config: 'kubectl trimtab' reads this path from the pod's specification.`,
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
