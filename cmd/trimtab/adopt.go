package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/adopt"
	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
)

func newAdopt() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adopt --from AGENT",
		Short: "Take over from another agent or the kubelet, and keep the CPUs that containers may keep",
		Long: `Reads which CPUs another agent of the node has assigned to running containers, from that
agent's files and annotations. It shows what would change if Trimtab took over now: a row
for each container, with the CPUs in its cpuset, the CPUs that it would get, KEEP or MOVE,
and why. Nothing changes.

The command needs a running Trimtab agent with mode: observe, which knows the runtime's
containers. CPUs in a file of the other agent count only if the container's cpuset in the
kernel has the same CPUs.

With --apply, Trimtab takes over at its next start with mode: enforce. Stop the other
agent before that start. Running containers then keep their CPUs if the configuration
allows it. Trimtab decides anew for all other containers, and reports this in 'trimtab
explain' and in the log. With --apply and without a running Trimtab agent, the command
shows only how many containers it read.

The exit code is 4 if a container would get other CPUs or memory nodes.`,
		Example: "  trimtab adopt --from kubelet\n  trimtab adopt --from kubelet -o json | jq '.containers[] | select(.keeps | not)'\n  trimtab adopt --from kubelet --apply",
		Args:    cli.Arguments(0),
	}
	from := cmd.Flags().String("from", "", "the `agent` to take over from: "+strings.Join(adopt.SystemNames(), ", "))
	root := cmd.Flags().String("root", "/", "the `directory` where the host's files are")
	apply := cmd.Flags().Bool("apply", false, "let Trimtab take over when it starts the next time")
	socket := addSocket(cmd)
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	connect := cmd.PreRunE
	var system adopt.System
	cmd.PreRunE = func(cmd *cobra.Command, args []string) (err error) {
		if *from == "" {
			return &usageError{fmt.Errorf("--from is missing: name the agent to take over from: %s", strings.Join(adopt.SystemNames(), ", "))}
		}
		if system, err = adopt.FindSystem(*from); err != nil {
			return &usageError{fmt.Errorf("--from: %w", err)}
		}
		return connect(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := system.Read(os.DirFS(*root))
		if err != nil {
			return fmt.Errorf("read which CPUs %s has assigned: %w", system.Name, err)
		}
		plan, err := planAdoption(cmd.Context(), *socket, found, *apply)
		if err != nil {
			return err
		}
		if *apply {
			if err := saveAdoption(cmd, found); err != nil {
				return err
			}
			plan.Applied = true
		}
		return printAdoption(cmd, out, plan)
	}
	return cmd
}

// printAdoption prints, for each container, whether it would keep its CPUs if Trimtab took over from the other agent
// now. It returns a *movesError if a container would get other CPUs or memory nodes.
func printAdoption(cmd *cobra.Command, out *cli.Format, plan api.Adoption) error {
	w := cmd.OutOrStdout()
	if err := out.PrintAs(w, "Adoption", plan, func() error { return status.RenderAdoption(w, plan) }); err != nil {
		return err
	}
	if plan.Moves > 0 {
		return &movesError{plan.Moves}
	}
	return nil
}

// planAdoption asks the running Trimtab agent which containers would keep their CPUs if Trimtab took over from the
// other agent. The parameter found has what the other agent assigned to containers. If no Trimtab agent runs,
// planAdoption returns an error, except if apply is set: then it returns only the number of containers in found.
func planAdoption(ctx context.Context, socket string, found lifecycle.FormerAgent, apply bool) (plan api.Adoption, err error) {
	err = withClient(ctx, socket, func(c *status.Client) error {
		plan, err = c.PlanAdoption(ctx, found)
		return err
	})
	switch alone := isNoAgent(err); {
	case alone && apply:
		return api.Adoption{From: found.System, ContainersRead: len(found.Containers)}, nil
	case alone:
		return plan, fmt.Errorf("%w; only a running Trimtab agent with mode: observe can say which containers would keep their CPUs", err)
	}
	return plan, asUsageError(err)
}

// saveAdoption stores found, the CPUs that the other agent has assigned to containers. At its next start, Trimtab takes
// over these containers with their CPUs.
func saveAdoption(cmd *cobra.Command, found lifecycle.FormerAgent) error {
	file, err := cmd.Flags().GetString("config")
	if err != nil {
		return err
	}
	c, _, err := loadConfig(file)
	if err != nil {
		return err
	}
	return agent.Adopt(c, found)
}
