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

// configVariable is the environment variable that names the configuration file if no flag does. The chart sets it,
// so that commands in the agent's pod find the agent.
const configVariable = "TRIMTAB_CONFIG"

// defaultConfigFile returns the configuration file if no flag names one. named reports whether the environment names it.
func defaultConfigFile() (file string, named bool) {
	file = os.Getenv(configVariable)
	return cmp.Or(file, configFile), file != ""
}

// addConfig gives a command the flag --config.
func addConfig(cmd *cobra.Command) *string {
	return cmd.Flags().String("config", "", "configuration `file` of the agent (default $"+configVariable+" or "+configFile+")")
}

// addSocket gives a command that asks the agent the flags for its status socket: --socket, or else
// paths.statusSocket of the file that --config names. The result has the path when the command runs.
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

// statusSocket returns the status socket from a configuration file. A running agent keeps its socket while its file
// is invalid, so errors in other keys of the file do not matter.
func statusSocket(named string) (string, error) {
	file, _ := defaultConfigFile()
	text, err := os.ReadFile(cmp.Or(named, file))
	if err != nil {
		if named != "" {
			return "", &usageError{fmt.Errorf("--config: %w; name the agent's configuration, or its socket with --socket", err)}
		}
		return config.Default().Paths.StatusSocket, nil // perhaps only root can read it
	}
	var c struct {
		Paths struct {
			StatusSocket *string `yaml:"statusSocket"`
		} `yaml:"paths"`
	}
	var types *yaml.TypeError // YAML, but another type
	err = yaml.Unmarshal(text, &c)
	if err != nil && !errors.As(err, &types) && named != "" {
		return "", &usageError{fmt.Errorf("--config %s: %w; check it with 'trimtab config check %[1]s', or name the socket with --socket", named, err)}
	}
	if err != nil || c.Paths.StatusSocket == nil {
		return config.Default().Paths.StatusSocket, nil //nolint:nilerr // config check names what is wrong with a file
	}
	if *c.Paths.StatusSocket == "" {
		return "", &status.Unreachable{
			Hint: "the agent serves no status socket: paths.statusSocket is empty in " + cmp.Or(named, file),
			Err:  errors.New("no status socket"),
		}
	}
	return *c.Paths.StatusSocket, nil
}
