package main

import (
	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
)

func newVersion() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version and the commit of this program",
		Long:    "Prints version and commit, as the Go toolchain recorded them when building.",
		Example: "  trimtab version\n  trimtab version -o json",
		Args:    cli.Arguments(0),
	}
	out := cli.AddFormat(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b := cli.ThisBuild()
		return out.PrintAs(cmd.OutOrStdout(), "Build", b, func() error {
			return cli.Write(cmd.OutOrStdout(), []byte(b.Line("trimtab")+"\n"))
		})
	}
	return cmd
}
