package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/status"
)

// configVariable is the environment variable with the path of the configuration file, for commands without the flag
// --config. The Helm chart sets the variable, so that commands in the agent's pod find the agent.
const configVariable = "TRIMTAB_CONFIG"

// defaultConfigFile returns the configuration file for commands without the flag --config. named is true if
// $TRIMTAB_CONFIG names this file.
func defaultConfigFile() (file string, named bool) {
	file = os.Getenv(configVariable)
	return cmp.Or(file, configFile), file != ""
}

// addConfig adds the flag --config to a command.
func addConfig(cmd *cobra.Command) *string {
	return cmd.Flags().String("config", "", "configuration `file` of the agent (default $"+configVariable+" or "+configFile+")")
}

// addSocket adds the flags --socket and --config to a command that asks the agent. When the command runs, the string
// that addSocket returns has the path of the agent's status socket: the value of --socket, or else paths.statusSocket
// in the configuration file.
func addSocket(cmd *cobra.Command) *string {
	socket := cmd.Flags().String("socket", "", "status socket of the agent (default paths.statusSocket of the configuration)")
	file := addConfig(cmd)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		if !cmd.Flags().Changed("socket") {
			*socket, err = statusSocket(*file)
		}
		return err
	}
	return socket
}

// statusSocket returns the value of the key paths.statusSocket in the configuration file. The parameter flag is the
// path in the flag --config; if it is "", statusSocket reads the default file. It ignores errors in other keys of the
// file, because a running agent keeps its socket while its file is invalid.
func statusSocket(flag string) (string, error) {
	file, _ := defaultConfigFile()
	text, err := os.ReadFile(cmp.Or(flag, file))
	if err != nil {
		if flag != "" {
			return "", &usageError{fmt.Errorf("--config: %w; name the agent's configuration file, or the agent's socket with --socket", err)}
		}
		return config.Default().Paths.StatusSocket, nil // perhaps only root can read the file, so try the default socket
	}
	var c struct {
		Paths struct {
			StatusSocket *string `yaml:"statusSocket"`
		} `yaml:"paths"`
	}
	var types *yaml.TypeError // the file is YAML, but a key has the wrong type
	err = yaml.Unmarshal(text, &c)
	if err != nil && !errors.As(err, &types) && flag != "" {
		return "", &usageError{fmt.Errorf("--config %s: %w; check it with 'trimtab config check %[1]s', or name the socket with --socket", flag, err)}
	}
	if err != nil || c.Paths.StatusSocket == nil {
		return config.Default().Paths.StatusSocket, nil //nolint:nilerr // 'trimtab config check' reports the errors of a file
	}
	if *c.Paths.StatusSocket == "" {
		return "", &status.UnreachableError{
			Hint: "the agent serves no status socket: paths.statusSocket is empty in " + cmp.Or(flag, file),
			Err:  errors.New("no status socket"),
		}
	}
	return *c.Paths.StatusSocket, nil
}
