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
)

// pluginSocket is set by a runtime for the pre-installed NRI plugins it starts.
const pluginSocket = "NRI_PLUGIN_SOCKET"

// The exit codes; help exit-codes documents them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitRefused     = 4
)

// exitCodes is the text of help exit-codes.
const exitCodes = `Every subcommand ends with one of these exit codes:

  0  done
  1  it failed, or the answer is no: an unknown pod, a scenario whose wants are not met,
     a problem found by doctor
  2  wrong use or bad input: an unknown flag or command, a refused configuration or scenario
  3  the agent is not reachable: it does not run, or its status socket is elsewhere or not ours to use
  4  'plan' found pods or containers that would be refused`

// invocation is how the program was started.
type invocation struct {
	name     string // argv[0]
	args     []string
	launched bool // started by a runtime, as a pre-installed NRI plugin
	in       io.Reader
	out, err io.Writer
}

// usageError is an error in a command line or in its input.
type usageError struct{ err error }

func (m *usageError) Error() string { return m.err.Error() }
func (m *usageError) Unwrap() error { return m.err }

// refusal is the error of a plan in which this many pods or containers would be refused.
type refusal struct{ count int }

func (r *refusal) Error() string { return fmt.Sprintf("%d would be refused", r.count) }

// pluginName is the form that runtimes require for the file name of a pre-installed plugin.
var pluginName = regexp.MustCompile(`^[0-9]{2}-`)

// command returns the arguments. If a runtime starts the program, which gives no arguments, it returns those of the
// agent.
func (i invocation) command() []string {
	if len(i.args) == 0 && (i.launched || pluginName.MatchString(filepath.Base(i.name))) {
		return []string{"agent"}
	}
	return i.args
}

// run runs one command and returns the exit code.
func run(ctx context.Context, i invocation) int {
	root, begun := newRoot() //nolint:contextcheck // the commands get the context when they run
	root.SetArgs(i.command())
	root.SetIn(i.in)
	root.SetOut(i.out)
	root.SetErr(i.err)
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.RunE = group, showHelp // cobra's takes any argument, and prints its help
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
		unreachable *status.Unreachable
		refusal     *refusal
	)
	switch {
	case err == nil:
		return exitOK
	case !begun, errors.As(err, &wrong), errors.As(err, &bad):
		return exitUsage
	case errors.As(err, &unreachable):
		return exitUnreachable
	case errors.As(err, &refusal):
		return exitRefused
	}
	return exitFailure
}

// newRoot returns the tree of commands, and whether one of them has begun.
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
		Args:              group,
		RunE:              showHelp,
		Version:           cli.ThisBuild().Version,
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(*cobra.Command, []string) error { *begun = true; return nil },
	}
	root.SetFlagErrorFunc(cli.FlagError)
	root.AddCommand(
		newAgent(), newDemo(), newSim(), newStatus(), newTop(), newPlan(), newExplain(), newEvents(), newReplay(), newDiff(), newObserve(), newRules(), newDoctor(), newSysdump(), newCapture(), newRelease(), newHooks(), newConfig(), newIdle(), newVersion(),
		&cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodes},
	)
	return root, begun
}

// group refuses arguments to a command that only has subcommands, and names those that the user perhaps meant.
func group(cmd *cobra.Command, args []string) error {
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
