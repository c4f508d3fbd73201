package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/fleet"
)

// The exit codes of the plugin. The program trimtab on a node uses the same exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitRefused     = 4
)

// exitCodes is the text of the help topic exit-codes.
const exitCodes = `Every subcommand ends with one of these exit codes. The program trimtab on a node has the
same exit codes:

  0  done
  1  the command failed or found a problem: an unknown pod, a problem found by doctor, a
     rollout that stopped, a difference found by 'config diff'
  2  wrong use or bad input: an unknown flag or command, a refused configuration
  3  the API server or an agent is not reachable, or your RBAC role lacks a rule
  4  'plan' found pods or containers that would be refused`

// streams are the standard streams of the process.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// usageError is an error in a command line or in an input file.
type usageError struct{ err error }

func (m *usageError) Error() string { return m.err.Error() }
func (m *usageError) Unwrap() error { return m.err }

// printedError is the error of a command that has already printed its result or error message.
type printedError struct{ code int }

func (q *printedError) Error() string { return fmt.Sprintf("exit code %d", q.code) }

// refusalError is the error of the command plan if every agent that answered would refuse at least one of the pods.
type refusalError struct{}

func (*refusalError) Error() string { return "every node would refuse at least one of the pods" }

// run runs one command and returns the exit code.
func run(ctx context.Context, args []string, s streams) int {
	root, begun := newRoot() //nolint:contextcheck // the commands get the context when they run
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	cmd, err := root.ExecuteContextC(ctx)
	var printed *printedError
	if errors.As(err, &printed) {
		return printed.code
	}
	code := exitCode(err, *begun)
	if err != nil {
		fmt.Fprintln(s.err, "kubectl trimtab: "+cleanLines(err.Error()))
		if code == exitUsage && !*begun {
			fmt.Fprintln(s.err, cli.HelpHint(cmd))
		}
	}
	return code
}

// exitCode returns the exit code for an error. If no command has begun, the error is about the command line.
func exitCode(err error, begun bool) int {
	var (
		wrong       *usageError
		bad         *config.Error
		exit        *fleet.ExitError
		unreachable *fleet.UnreachableError
		forbidden   *fleet.ForbiddenError
		refused     *refusalError
	)
	switch {
	case err == nil:
		return exitOK
	case !begun, errors.As(err, &wrong), errors.As(err, &bad):
		return exitUsage
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &refused):
		return exitRefused
	case errors.As(err, &unreachable), errors.As(err, &forbidden):
		return exitUnreachable
	}
	return exitFailure
}

// plugin has the values of the flags that all commands share: how to reach the cluster and its agents.
type plugin struct {
	kubeconfig     clientcmd.ClientConfigLoadingRules
	overrides      clientcmd.ConfigOverrides // values of flags that replace values of the kubeconfig
	agentNamespace string                    // the namespace of the agents' pods; "" means all namespaces
	timeout        time.Duration             // how long one agent may take to answer
	maxParallel    int                       // how many agents are queried at the same time
}

// newRoot returns the root command, and a variable that becomes true when a command begins.
func newRoot() (*cobra.Command, *bool) {
	begun := new(bool)
	p := &plugin{kubeconfig: *clientcmd.NewDefaultClientConfigLoadingRules()}
	root := &cobra.Command{
		Use:   "kubectl-trimtab",
		Short: "Query the Trimtab agents of a cluster, and roll out configurations to them",
		Long: `Queries the Trimtab agents of one node or of all nodes, and rolls out configurations node
by node. It finds the agents' pods through the API server, and runs the program trimtab in
these pods (pods/exec). So agents need no open port.

If kubectl-trimtab is in a directory of PATH, 'kubectl trimtab' runs it. It reads the same
kubeconfig files as kubectl.`,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl trimtab"},
		Args:              cli.Arguments(0),
		RunE:              showHelp,
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(*cobra.Command, []string) error { *begun = true; return nil },
	}
	p.addFlags(root.PersistentFlags())
	root.SetFlagErrorFunc(cli.FlagError)
	root.AddCommand(
		newNodes(p), newStatus(p), newTop(p), newExplain(p), newEvents(p), newDoctor(p), newPlan(p), newConfig(p), newVersion(p),
		&cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodes},
	)
	return root, begun
}

// addFlags adds kubectl's flags about clusters, and the plugin's own flags about agents.
func (p *plugin) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&p.kubeconfig.ExplicitPath, "kubeconfig", "", "kubeconfig `file` (default $KUBECONFIG, else ~/.kube/config)")
	clientcmd.BindOverrideFlags(&p.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	flags.StringVar(&p.agentNamespace, "agent-namespace", "", "namespace of the agents' pods (default: found by label in all namespaces)")
	flags.DurationVar(&p.timeout, "timeout", 20*time.Second, "how long one agent may take to answer")
	flags.IntVar(&p.maxParallel, "parallel", 20, "how many agents are queried at the same time")
}

// connect reads the kubeconfig and returns a client of the cluster. It also returns a namespace: the value of -n, or
// else the namespace of the kubeconfig's context.
func (p *plugin) connect() (c *fleet.Cluster, namespace string, err error) {
	if p.maxParallel < 1 || p.timeout <= 0 {
		return nil, "", &usageError{errors.New("--parallel and --timeout must be above zero")}
	}
	file := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&p.kubeconfig, &p.overrides)
	conf, err := file.ClientConfig()
	if err != nil {
		return nil, "", &usageError{fmt.Errorf("read the kubeconfig: %w; choose a file with --kubeconfig or $KUBECONFIG", err)}
	}
	conf.UserAgent = "kubectl-trimtab/" + cli.ThisBuild().Version
	if namespace, _, err = file.Namespace(); err != nil {
		return nil, "", &usageError{fmt.Errorf("read the kubeconfig: %w", err)}
	}
	c, err = fleet.Connect(conf, p.agentNamespace)
	return c, namespace, err
}

// connectToAll connects to the cluster and finds all nodes and their agents.
func (p *plugin) connectToAll(ctx context.Context) (*fleet.Cluster, fleet.FindResult, error) {
	c, _, err := p.connect()
	if err != nil {
		return nil, fleet.FindResult{}, err
	}
	found, err := c.Find(ctx)
	return c, found, err
}

// connectToNode connects to the cluster and finds the agent of a node.
func (p *plugin) connectToNode(ctx context.Context, node string) (*fleet.Cluster, *fleet.Agent, error) {
	c, found, err := p.connectToAll(ctx)
	if err != nil {
		return nil, nil, err
	}
	n, err := found.Node(node)
	if err != nil {
		return nil, nil, err
	}
	if why := n.WhyUnreachable(); why != "" {
		return nil, nil, &fleet.UnreachableError{Reason: "node " + node + ": " + why}
	}
	return c, n.Agent, nil
}

// showHelp prints the help of a command. It is for commands that only have subcommands.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }
