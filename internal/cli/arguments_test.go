package cli_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
)

func TestUsageErrors(t *testing.T) {
	for line, want := range map[string]string{
		"explain":                   `"tool explain" needs the argument NAMESPACE/POD`,
		"explain a b":               `"tool explain" takes only NAMESPACE/POD, but also got "b"`,
		"status a":                  `"tool status" takes no arguments, but got "a"`,
		"status --outptu json":      `unknown flag --outptu of "tool status"; did you mean --output?`,
		"status --zzzzzzzzz":        `unknown flag --zzzzzzzzz of "tool status"`,
		"status -z":                 `unknown flag -z of "tool status"`,
		"status -o":                 `--output needs a value: what to print: table, json`,
		"status -o xml":             `--output "xml": want table or json`,
		"status --count x":          `--count "x": want a whole number`,
		"status --count -1":         `--count "-1": want a whole number`,
		"status --wait soon":        `--wait "soon": want a duration such as 90s, 5m or 2h`,
		"status --all=perhaps":      `--all "perhaps": want true or false`,
		"status --wait 1s -o json":  "",
		"explain shop/db --verbose": "",
	} {
		root := &cobra.Command{Use: "tool", SilenceErrors: true, SilenceUsage: true}
		root.SetFlagErrorFunc(cli.FlagError)
		run := func(*cobra.Command, []string) {}
		explain := &cobra.Command{Use: "explain", Args: cli.Arguments(1, "NAMESPACE/POD"), Run: run}
		status := &cobra.Command{Use: "status", Args: cli.Arguments(0), Run: run}
		cli.AddFormat(status, "table", "json")
		status.Flags().Uint64("count", 0, "how many")
		status.Flags().Duration("wait", time.Second, "how long")
		status.Flags().Bool("all", false, "all")
		root.PersistentFlags().Bool("verbose", false, "say more")
		root.AddCommand(explain, status)
		root.SetArgs(strings.Fields(line))
		root.SetOut(io.Discard)
		cmd, err := root.ExecuteC()
		got := ""
		if err != nil {
			got = err.Error()
			if hint := cli.HelpHint(cmd); hint != "Run 'tool "+strings.Fields(line)[0]+" --help' to see how to use the command." {
				t.Errorf("%s: the hint is %q", line, hint)
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}
