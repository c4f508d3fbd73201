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
  1  it failed, or the answer is no: an unknown pod, a scenario whose wants are not met,
     a problem found by doctor
  2  wrong use or bad input: an unknown flag or command, a refused configuration or scenario
  3  the agent is not reachable: it does not run, or you may not use its status socket
  4  'plan' found pods or containers that would be refused, or 'adopt' containers that
     would move`

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

// refusalError is the error of a plan in which pods or containers would be refused. count is their number.
type refusalError struct{ count int }

func (r *refusalError) Error() string {
	return fmt.Sprintf("%d of the pods and containers would be refused", r.count)
}

// movesError is the error of an adoption in which containers would get other CPUs. count is their number.
type movesError struct{ count int }

func (m *movesError) Error() string { return term.Count(m.count, "container") + " would move" }

// pluginName matches the file name of a pre-installed plugin, as runtimes require it.
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
		completion.Args, completion.RunE = refuseArguments, showHelp // cobra's own command accepts all arguments, and prints its help
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

// exitCode returns the exit code for an error. An error before a command begins means that cobra refused the
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

'trimtab demo' shows it at work without root, runtime or cluster.`,
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
	// cobra sets the distance only for the root.
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
