package main

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
)

// configFile is the path of the configuration file if neither the flag --config nor $TRIMTAB_CONFIG names a file.
const configFile = "/etc/trimtab/config.yaml"

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check, print and describe configurations",
		Long:  "The configuration is one YAML file, read strictly: see docs/config.md for its keys.",
		Args:  refuseArguments,
		RunE:  showHelp,
	}
	cmd.AddCommand(newConfigInit(), newConfigCheck(), newConfigConvert(), newConfigPlan(), newConfigPrint(), newConfigSchema())
	return cmd
}

func newConfigPrint() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print [FILE...]",
		Short: "Print the effective configuration of files, or the defaults; with --sources also what set each key",
		Long: `Prints the configuration that a file gives: its values, and the defaults for all
other keys. Without a file it prints the defaults, to start a file of your own.

Each further file has priority over the files before it: sections merge key by key, and a
list or a single value replaces the earlier value.

With --sources it shows for each key what set it: the default, a file, a ConfigMap or a
flag. With --sources and without a file, it shows the configuration of the running
agent.`,
		Example: `  trimtab config print > config.yaml
  trimtab config print -o json /etc/trimtab/config.yaml
  trimtab config print --sources
  trimtab config print --sources /etc/trimtab/config.yaml cluster.yaml`,
	}
	socket := addSocket(cmd)
	out := cli.AddFormat(cmd, "yaml", "json")
	var sources bool
	cmd.Flags().BoolVar(&sources, "sources", false, "show what set each key; without FILE, for the configuration of the running agent")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if sources && len(args) == 0 {
			return withClient(cmd.Context(), *socket, func(c *status.Client) error {
				all, err := c.Config(cmd.Context())
				if err != nil {
					return err
				}
				return printSources(cmd, out, all)
			})
		}
		c, from, err := mergeFiles(args)
		switch {
		case err != nil:
			return &usageError{err}
		case sources:
			var all api.Configuration
			from.Visit(c, func(key, value, source string) {
				all.Keys = append(all.Keys, api.Setting{Key: key, Value: value, Source: source})
			})
			return printSources(cmd, out, all)
		case out.String() == "yaml": // print the keys in the order of docs/config.md
			return cli.Write(cmd.OutOrStdout(), append([]byte(modeline), config.Print(c)...))
		}
		return out.Print(cmd.OutOrStdout(), c, nil)
	}
	return cmd
}

// printSources prints keys and their sources, as a table or in the format of the flag -o.
func printSources(cmd *cobra.Command, out *cli.Format, all api.Configuration) error {
	if cmd.Flags().Changed("output") {
		return out.PrintAs(cmd.OutOrStdout(), "ConfigSources", all, nil)
	}
	return status.RenderConfig(cmd.OutOrStdout(), all)
}

// mergeFiles merges configuration files. A file overrides the files before it. Without files it returns the defaults.
func mergeFiles(files []string) (config.Config, config.Sources, error) {
	var layers []config.Layer
	for _, file := range files {
		data, err := config.Read(file)
		if err != nil {
			return config.Config{}, nil, err
		}
		layers = append(layers, config.Layer{Name: file, Data: data})
	}
	if len(layers) == 0 {
		return config.Default(), nil, nil
	}
	return config.Merge(layers...)
}

func newConfigSchema() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of configuration files",
		Long:    "Prints the JSON Schema of configuration files, for editors and for checks in CI.",
		Example: "  trimtab config schema > trimtab.schema.json",
		Args:    cli.Arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			schema, err := config.Schema()
			if err != nil {
				return err
			}
			return cli.Write(cmd.OutOrStdout(), schema)
		},
	}
}

// loadConfig reads the agent's configuration: the file in the flag --config, or else the file in $TRIMTAB_CONFIG, or
// else the default file. It also returns the path of this file. Only the default file may be missing: loadConfig then
// returns the default configuration and the path "".
func loadConfig(flag string) (c config.Config, path string, err error) {
	file, must := flag, flag != ""
	if !must {
		file, must = defaultConfigFile()
	}
	switch c, err = config.Load(file); {
	case !must && errors.Is(err, fs.ErrNotExist):
		return config.Default(), "", nil
	case err != nil:
		return c, "", &usageError{err}
	}
	return c, file, nil
}
