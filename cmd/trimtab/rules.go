package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/term"
	"github.com/trimtab/trimtab/internal/rules/rulestest"
)

func newRules() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "Check and test rules in CEL, without an agent",
		Long:  "Rules are a part of the agent's configuration: see docs/rules.md.",
		Args:  refuseArguments,
		RunE:  showHelp,
	}
	cmd.AddCommand(newRulesCheck(), newRulesTest())
	return cmd
}

func newRulesCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check the rules of a configuration, or of a file of tests",
		Long: `Compiles the rules of a file and prints the name of each rule. It reports the line of each
mistake. If the mistake is in an expression, it also reports the position in the
expression. The exit code is 2 if there is a mistake.`,
		Example: "  trimtab rules check /etc/trimtab/config.yaml\n  trimtab rules check rules-test.yaml",
		Args:    cli.Arguments(1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadRules(args[0])
			if err != nil {
				return &usageError{err}
			}
			for _, r := range c.Rules {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", term.Clean(r.Name))
			}
			if len(c.Rules) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "the configuration has no rules")
			}
			return nil
		},
	}
}

func newRulesTest() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test FILE",
		Short: "Test rules with the cases of a file, and show each result that differs",
		Long: `Reads a file of kind RulesTest. The file has test cases, and rules or the path of a
configuration with rules. A case has a pod, and says what the rules should set, match or
refuse for one container of the pod. No agent is needed. docs/rules.md has the format.

The exit code is 0 if all cases succeed, 1 if some fail, and 2 if the file, its rules
or a pod is malformed.`,
		Example: "  trimtab rules test examples/rules/rules-test.yaml",
		Args:    cli.Arguments(1, "FILE"),
	}
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := loadRulesTest(args[0])
		if err != nil {
			return &usageError{err}
		}
		node, err := agent.RulesNode(f.Config, f.NamespaceLabels)
		if err != nil {
			return &usageError{err}
		}
		report := f.Run(node)
		w := cmd.OutOrStdout()
		if err := out.Print(w, report, func() error { return renderRulesTest(w, &report) }); err != nil {
			return err
		}
		switch {
		case report.NotRun > 0:
			return &usageError{fmt.Errorf("%s: %s cannot be run", args[0], term.Count(report.NotRun, "case"))}
		case report.Failed > 0:
			return errors.New("some cases failed")
		}
		return nil
	}
	return cmd
}

// loadRules loads a configuration with rules. If the file contains tests of rules in place of a configuration,
// loadRules loads the configuration that the file of tests names.
func loadRules(file string) (config.Config, error) {
	c, err := config.Load(file)
	if err == nil {
		return c, nil
	}
	f, testErr := loadRulesTest(file)
	if testErr == nil {
		return f.Config, nil
	}
	if errors.Is(testErr, rulestest.ErrKind) {
		return c, err
	}
	return c, testErr
}

// loadRulesTest loads a file of tests. The path of the configuration in the file is relative to the file's directory.
func loadRulesTest(file string) (*rulestest.File, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return rulestest.Parse(file, text, func(path string) (config.Config, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(file), path)
		}
		return config.Load(path)
	})
}

// renderRulesTest prints a line for each case, the differences of failed cases, and the rules that no case matches.
func renderRulesTest(w io.Writer, r *rulestest.Report) error {
	for _, c := range r.Cases {
		switch {
		case c.Error != "":
			fmt.Fprintf(w, "WRONG  %s\n         %s\n", term.Clean(c.Name), term.Clean(c.Error))
		case len(c.Differences) > 0:
			fmt.Fprintf(w, "FAIL   %s\n", term.Clean(c.Name))
			for _, d := range c.Differences {
				fmt.Fprintf(w, "         %s: want %s, got %s\n", term.Clean(d.What), nothingIfEmpty(d.Want), nothingIfEmpty(d.Got))
			}
		default:
			fmt.Fprintf(w, "ok     %s\n", term.Clean(c.Name))
		}
	}
	for _, rule := range r.Rules {
		if rule.Cases == 0 {
			fmt.Fprintf(w, "no case matches rule %s\n", term.Clean(rule.Name))
		}
	}
	_, err := fmt.Fprintf(w, "%s, %d failed\n", term.Count(len(r.Cases), "case"), r.Failed+r.NotRun)
	return err
}

// nothingIfEmpty returns the word nothing for an empty text.
func nothingIfEmpty(text string) string {
	if text == "" {
		return "nothing"
	}
	return term.Clean(text)
}
