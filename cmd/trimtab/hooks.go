package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nearest"
	"github.com/trimtab/trimtab/internal/report/term"
)

func newHooks() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hooks [NAME]",
		Short: "List the built-in policies: which are enabled, which this node supports, what each reads",
		Long: `Lists every hook: whether the configuration switches it on, whether this node supports
it (yes, no with the reason, or unknown), and the labels and annotations it reads.
With a name it shows the page of that hook: the lifecycle steps at which it acts, the
values it sets, the kernel features it needs, how it works with other hooks. -o json and
-o yaml have all details. Some hooks read annotations of another system, such as
Koordinator: the details also say how such a hook differs from this system. The command
takes the paths of the node's cgroups and devices from the agent's configuration.`,
		Example: "  trimtab hooks\n  trimtab hooks cpuset\n  trimtab hooks -o yaml\n  trimtab hooks --cgroup-root /host/sys/fs/cgroup",
		Args:    cli.Arguments(0, "NAME"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return hookNames(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	root := cmd.Flags().String("cgroup-root", "", "where this node's cgroups are mounted (default cgroup.root of the configuration)")
	file := addConfig(cmd)
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		w := cmd.OutOrStdout()
		c, _, err := loadConfig(*file)
		switch {
		case errors.Is(err, fs.ErrPermission) && *file == "": // perhaps only root can read the file, so show the defaults
			fmt.Fprintln(cmd.ErrOrStderr(), "the configuration file cannot be read, so the defaults are shown:", err)
			c = config.Default()
		case err != nil:
			return err
		}
		hooks := hooksOnNode(cmp.Or(*root, c.Cgroup.Root), &c)
		if len(args) == 0 {
			return out.PrintList(w, "HookList", hooks, func() error { return printHookTable(w, hooks) })
		}
		for i := range hooks {
			if hooks[i].Name == args[0] {
				return out.PrintAs(w, "Hook", hooks[i], func() error { return printHookPage(w, &hooks[i]) })
			}
		}
		if near, distance := nearest.Word(args[0], hookNames()); distance <= 2 {
			return &usageError{fmt.Errorf("there is no hook %q; did you mean %q?", args[0], near)}
		}
		return &usageError{fmt.Errorf("there is no hook %q: 'trimtab hooks' lists all hooks", args[0])}
	}
	return cmd
}

func hookNames() (names []string) {
	for _, h := range hook.Catalogue() {
		names = append(names, h.Name)
	}
	return names
}

// hookOnNode is a hook, whether the configuration enables it, and whether it can take effect on this node.
type hookOnNode struct {
	hook.Info
	Enabled bool              `json:"enabled"`
	Here    string            `json:"here"` // finding as text, with the reason
	finding lifecycle.Finding // whether this node has the kernel features that the hook needs, and the reason if it lacks them
}

// hooksOnNode returns all hooks. root is where this node's cgroups are mounted.
func hooksOnNode(root string, c *config.Config) []hookOnNode {
	var tree *cgroup.Tree
	if files, err := cgroup.OpenRoot(root); err == nil {
		defer files.Close()
		if t, err := cgroup.Open(files); err == nil {
			tree = t
		}
	}
	all := c.Hooks.Catalogue()
	var out []hookOnNode
	for i, h := range agent.ProbeHooks(tree, c.Paths, all) {
		out = append(out, hookOnNode{all[i], c.Hooks.Enabled(h.Name), h.Effective(), h.Finding})
	}
	return out
}

// printHookTable prints a row for each hook.
func printHookTable(w io.Writer, hooks []hookOnNode) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tENABLED\tSUPPORTED HERE\tREADS")
	for i := range hooks {
		h := &hooks[i]
		enabled := "no"
		if h.Enabled {
			enabled = "yes"
		}
		reads := "-"
		if len(h.Reads) > 0 {
			reads = h.Reads[0]
		}
		if more := len(h.Reads) - 1; more > 0 {
			reads += fmt.Sprintf(" and %d more", more)
		}
		here := map[lifecycle.Support]string{lifecycle.Supported: "yes", lifecycle.NotSupported: "no", lifecycle.Unknown: "unknown"}[h.finding.Support]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", h.Name, enabled, here, reads)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print the hooks: %w", err)
	}
	_, err := fmt.Fprintln(w, "\n'trimtab hooks NAME' shows one hook with the reason; hooks.NAME.enabled in the configuration enables or disables it.")
	return err
}

// printHookPage prints all details of one hook.
func printHookPage(w io.Writer, h *hookOnNode) error {
	fmt.Fprintf(w, "%s: %s\n", h.Name, h.About)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, entries []string, sep string) {
		if len(entries) > 0 {
			fmt.Fprintf(t, "  %s\t%s\n", name, strings.Join(entries, sep))
		}
	}
	row("enabled", []string{map[bool]string{true: "yes", false: "no"}[h.Enabled]}, "")
	row("on this node", []string{h.Here}, "")
	row("called at", term.Wrap(strings.Join(stringsOf(h.Stages), ", "), 80), "\n  \t")
	row("reads", h.Reads, "\n  \t")
	row("sets", stringsOf(h.Sets), ", ")
	row("sets on the pod", stringsOf(h.SetsOnPod), ", ")
	row("needs", alternatives(h.KernelFeatures), "\n  \t")
	row("with other hooks", term.Wrap(h.Compose, 80), "\n  \t")
	if h.TestedOn != "" {
		row("tested on", []string{h.TestedOn}, "")
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print the hook: %w", err)
	}
	return nil
}

// alternatives rewrites needed kernel features for users: "a|b" becomes "a or b".
func alternatives(needs []string) []string {
	var out []string
	for _, n := range needs {
		out = append(out, strings.ReplaceAll(n, "|", " or "))
	}
	return out
}

func stringsOf[T fmt.Stringer](list []T) []string {
	var out []string
	for _, s := range list {
		out = append(out, s.String())
	}
	return out
}
