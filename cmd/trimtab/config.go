package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/config"
)

// configFile is read where no other is named.
const configFile = "/etc/trimtab/config.yaml"

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check, print and describe configurations",
		Long:  "The configuration is one YAML file, read strictly: see docs/config.md for its keys.",
		Args:  group,
		RunE:  showHelp,
	}
	cmd.AddCommand(newConfigCheck(), newConfigPlan(), newConfigPrint(), newConfigSchema())
	return cmd
}

func newConfigCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE...",
		Short: "Check configuration files",
		Long: `Reads configuration files as the agent would and names every problem with file,
line and key. The exit code is 2 if there is one.`,
		Example: "  trimtab config check /etc/trimtab/config.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var wrong error
			for _, file := range args {
				if _, err := config.Load(file); err != nil {
					wrong = errors.Join(wrong, err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", file)
			}
			if wrong != nil {
				return &misuse{wrong}
			}
			return nil
		},
	}
}

func newConfigPrint() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print [FILE]",
		Short: "Print the effective configuration of a file, or the defaults",
		Long: `Prints the configuration that a file gives: its values, and the defaults for all
other keys. Without a file it prints the defaults, to start a file of your own.`,
		Example: "  trimtab config print > config.yaml\n  trimtab config print -o json /etc/trimtab/config.yaml",
		Args:    cobra.MaximumNArgs(1),
	}
	out := addFormat(cmd, "yaml", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := config.Default()
		if len(args) > 0 {
			var err error
			if c, err = config.Load(args[0]); err != nil {
				return &misuse{err}
			}
		}
		if out.is == "yaml" { // in the order of the docs
			return write(cmd.OutOrStdout(), config.Print(c))
		}
		return out.print(cmd.OutOrStdout(), c, nil)
	}
	return cmd
}

func newConfigSchema() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of configuration files",
		Long:    "Prints the JSON Schema of configuration files, for editors and for checks in CI.",
		Example: "  trimtab config schema > trimtab.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			schema, err := config.Schema()
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), schema)
		},
	}
}

// load reads the configuration of an agent. Without a file named, the one at
// the usual place is read where it is there; used is "" where none was.
func load(named string) (c config.Config, used string, err error) {
	file := named
	if file == "" {
		file = configFile
	}
	switch c, err = config.Load(file); {
	case named == "" && errors.Is(err, fs.ErrNotExist):
		return config.Default(), "", nil
	case err != nil:
		return c, "", &misuse{err}
	}
	return c, file, nil
}
