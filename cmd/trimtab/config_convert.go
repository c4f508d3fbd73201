package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/config"
)

func newConfigConvert() *cobra.Command {
	return &cobra.Command{
		Use:   "convert FILE",
		Short: "Convert a policy of nri-plugins or a kubelet configuration",
		Long: `Converts a custom resource BalloonsPolicy or TopologyAwarePolicy of
containers/nri-plugins, or a KubeletConfiguration with static managers, into a
configuration, and prints it.
Keys that have no equivalent are named on the standard error, with file and line.

An agent also reads such a policy as it is: placement.policyFile names the file.`,
		Example: "  kubectl get -n kube-system balloonspolicies default -o yaml > policy.yaml\n  trimtab config convert policy.yaml > config.yaml\n  trimtab config convert /var/lib/kubelet/config.yaml",
		Args:    cli.Arguments(1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := config.Read(args[0])
			if err != nil {
				return &usageError{err}
			}
			c, err := config.Convert(args[0], text)
			if err != nil {
				return &usageError{err}
			}
			for _, p := range c.Unserved {
				fmt.Fprintln(cmd.ErrOrStderr(), p)
			}
			return cli.Write(cmd.OutOrStdout(), append([]byte(modeline), c.Text...))
		},
	}
}
