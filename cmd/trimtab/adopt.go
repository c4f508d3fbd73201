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

It asks a running agent with mode: observe, which has the list of the runtime. A row of
a file counts only if the kernel's cpuset of that container agrees.

With --apply the agent takes over when it starts the next time with mode: enforce. The
containers that run then keep their CPUs if they may; the agent decides again for all
others, and reports that in 'trimtab explain' and the log. Stop the other agent before
that start. Without a running agent, --apply shows only what was read.

The exit code is 4 if a container would move.`,
		Example: "  trimtab adopt --from kubelet\n  trimtab adopt --from kubelet -o json | jq '.containers[] | select(.keeps | not)'\n  trimtab adopt --from kubelet --apply",
		Args:    cli.Arguments(0),
	}
	from := cmd.Flags().String("from", "", "the `agent` to take over from: "+strings.Join(adopt.SystemNames(), ", "))
	root := cmd.Flags().String("root", "/", "the `directory` where the host's files are")
	apply := cmd.Flags().Bool("apply", false, "make the next start of the agent take over")
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

// printAdoption prints which containers would keep their CPUs. It returns a *movesError if containers would move.
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

// planAdoption asks the agent which containers would keep their CPUs. With apply, it is no error if no agent runs.
func planAdoption(ctx context.Context, socket string, found lifecycle.FormerAgent, apply bool) (plan api.Adoption, err error) {
	err = withClient(ctx, socket, func(c *status.Client) error {
		plan, err = c.PlanAdoption(ctx, found)
		return err
	})
	switch alone := isNoAgent(err); {
	case alone && apply:
		return api.Adoption{From: found.System, ContainersRead: len(found.Containers)}, nil
	case alone:
		return plan, fmt.Errorf("%w; only a running agent with mode: observe can say what it would decide", err)
	}
	return plan, asUsageError(err)
}

// saveAdoption stores what the other agent has assigned. The agent takes it over at its next start.
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
