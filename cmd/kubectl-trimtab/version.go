package main

import (
	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
)

// newVersion returns the command version, which prints the version of this plugin.
func newVersion(*plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version and the commit of this plugin",
		Long:    "Prints the version and the commit of the plugin. 'kubectl trimtab nodes' prints the versions of the agents.",
		Example: "  kubectl trimtab version\n  kubectl trimtab version -o json",
		Args:    cli.Arguments(0),
	}
	out := cli.AddFormat(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b := cli.ThisBuild()
		return out.PrintAs(cmd.OutOrStdout(), "Build", b, func() error {
			return cli.Write(cmd.OutOrStdout(), []byte(b.Line("kubectl-trimtab")+"\n"))
		})
	}
	return cmd
}
