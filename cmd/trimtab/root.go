package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/report/term"
)

// pluginSocket is an environment variable that a runtime sets for the pre-installed NRI plugins that it starts.
const pluginSocket = "NRI_PLUGIN_SOCKET"

// The exit codes. The help topic exit-codes documents them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitRefused     = 4
)

// exitCodes is the text of the help topic exit-codes.
const exitCodes = `Every subcommand ends with one of these exit codes:

  0  done
  1  the command failed, or its answer is no: an unknown pod, a scenario with results other
     than expected, a problem that doctor found
  2  wrong use or bad input: an unknown flag or command, a refused configuration or scenario
  3  the agent is not reachable: it does not run, or you may not use its status socket
  4  'plan' found pods or containers that would be refused, or 'adopt' found containers
     that would get other CPUs or memory nodes`

// invocation is how the program was started.
type invocation struct {
	name     string // argv[0]
	args     []string
	launched bool // started by a runtime, as a pre-installed NRI plugin
	in       io.Reader
	out, err io.Writer
}

// usageError is an error in a command line or in an input file.
type usageError struct{ err error }

func (m *usageError) Error() string { return m.err.Error() }
func (m *usageError) Unwrap() error { return m.err }

// refusalError is the error of a command that plans, if pods or containers in the plan would be refused. The field
// count is the number of these pods and containers.
type refusalError struct{ count int }

func (r *refusalError) Error() string {
	return fmt.Sprintf("%d of the pods and containers would be refused", r.count)
}

// movesError is the error of the command adopt if containers would get other CPUs or memory nodes when Trimtab takes
// over. The field count is the number of these containers.
type movesError struct{ count int }

func (m *movesError) Error() string {
	return term.Count(m.count, "container") + " would get other CPUs or memory nodes"
}

// pluginName matches the two digits with which runtimes require the file name of a pre-installed plugin to begin.
var pluginName = regexp.MustCompile(`^[0-9]{2}-`)

// commandArgs returns the command-line arguments. A runtime starts a pre-installed plugin without arguments; then
// commandArgs returns the subcommand agent.
func (i invocation) commandArgs() []string {
	if len(i.args) == 0 && (i.launched || pluginName.MatchString(filepath.Base(i.name))) {
		return []string{"agent"}
	}
	return i.args
}

// run runs one command and returns the exit code.
func run(ctx context.Context, i invocation) int {
	root, begun := newRoot() //nolint:contextcheck // the commands get the context when they run
	root.SetArgs(i.commandArgs())
	root.SetIn(i.in)
	root.SetOut(i.out)
	root.SetErr(i.err)
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.RunE = refuseArguments, showHelp // by default, this command of cobra accepts wrong arguments and prints its help
	}
	cmd, err := root.ExecuteContextC(ctx)
	code := exitCode(err, *begun)
	if err != nil {
		fmt.Fprintf(i.err, "trimtab: %v\n", err)
		if code == exitUsage && !*begun {
			fmt.Fprintln(i.err, cli.HelpHint(cmd))
		}
	}
	return code
}

// exitCode returns the exit code for an error. If no command had begun, the error means that cobra refused the
// arguments.
func exitCode(err error, begun bool) int {
	var (
		wrong       *usageError
		bad         *config.Error
		unreachable *status.UnreachableError
		refusal     *refusalError
		moved       *movesError
	)
	switch {
	case err == nil:
		return exitOK
	case !begun, errors.As(err, &wrong), errors.As(err, &bad):
		return exitUsage
	case errors.As(err, &unreachable):
		return exitUnreachable
	case errors.As(err, &refusal), errors.As(err, &moved):
		return exitRefused
	}
	return exitFailure
}

// newRoot returns the root command, and a variable that becomes true when a command begins.
func newRoot() (*cobra.Command, *bool) {
	begun := new(bool)
	root := &cobra.Command{
		Use:   "trimtab",
		Short: "Quality of service for containers, in force before they start",
		Long: `Trimtab is a node agent for Kubernetes. It sees every pod and container as the
runtime creates it, works out what quality of service the pod was promised, and
makes the few changes (CPUs, weights, limits, devices, environment) that keep the
promise before the first instruction of the container runs.

'trimtab demo' shows Trimtab at work without root, runtime or cluster.`,
		Args:              refuseArguments,
		RunE:              showHelp,
		Version:           cli.ThisBuild().Version,
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(*cobra.Command, []string) error { *begun = true; return nil },
	}
	root.SetFlagErrorFunc(cli.FlagError)
	root.AddCommand(
		newAgent(), newDemo(), newSim(), newStatus(), newTop(), newPlan(), newExplain(), newEvents(), newReplay(), newDiff(), newObserve(), newRules(), newDoctor(), newSysdump(), newCapture(), newAdopt(), newRelease(), newHooks(), newConfig(), newIdle(), newVersion(),
		&cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodes},
	)
	return root, begun
}

// refuseArguments returns an error for arguments of a command that only has subcommands. The error suggests subcommands
// with a similar name.
func refuseArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
	// cobra sets SuggestionsMinimumDistance only for the root command.
	cmd.SuggestionsMinimumDistance = max(cmd.SuggestionsMinimumDistance, 2)
	for i, s := range cmd.SuggestionsFor(args[0]) {
		if i == 0 {
			err = fmt.Errorf("%w; did you mean", err)
		}
		err = fmt.Errorf("%w %q?", err, s)
	}
	return err
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }
