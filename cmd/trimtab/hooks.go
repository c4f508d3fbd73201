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
)

func newHooks() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hooks",
		Short: "The policies built in: what each reads, sets and needs",
		Long: `Lists every hook with the lifecycle steps it acts at, the labels and annotations it
reads, the values it sets, the kernel features it needs, how it works with other
hooks, and whether it can take effect on this node: effective, not effective, or
unknown, with the reason. -o json and -o yaml also list the differences from the
system whose annotations it reads. Where the cgroups and devices of this node are is
read from the agent's configuration.`,
		Example: "  trimtab hooks\n  trimtab hooks -o yaml\n  trimtab hooks --cgroup-root /host/sys/fs/cgroup",
		Args:    cli.Arguments(0),
	}
	root := cmd.Flags().String("cgroup-root", "", "where this node's cgroups are mounted (default cgroup.root of the configuration)")
	file := addConfig(cmd)
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		w := cmd.OutOrStdout()
		c, _, err := load(*file)
		switch {
		case errors.Is(err, fs.ErrPermission) && *file == "": // it may be readable by root alone
			fmt.Fprintln(cmd.ErrOrStderr(), "judged by the default paths:", err)
			c = config.Default()
		case err != nil:
			return err
		}
		hooks := hooksHere(cmp.Or(*root, c.Cgroup.Root), c.Paths)
		return out.Print(w, hooks, func() error { return hookTable(w, hooks) })
	}
	return cmd
}

// hookOnNode is a hook and whether it can take effect on this node.
type hookOnNode struct {
	hook.Info
	Here string `json:"here"`
}

func hooksHere(root string, paths config.Paths) []hookOnNode {
	var tree *cgroup.Tree
	if files, err := cgroup.OpenRoot(root); err == nil {
		defer files.Close()
		if t, err := cgroup.Open(files); err == nil {
			tree = t
		}
	}
	all := hook.Catalogue()
	var out []hookOnNode
	for i, h := range agent.Effective(tree, paths, all) {
		out = append(out, hookOnNode{all[i], h.Effective()})
	}
	return out
}

// hookTable shows one block per hook: the lists are too long for columns.
func hookTable(w io.Writer, hooks []hookOnNode) error {
	for i, h := range hooks {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s: %s\n", h.Name, h.About)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		row := func(name string, entries []string, sep string) {
			if len(entries) > 0 {
				fmt.Fprintf(t, "  %s\t%s\n", name, strings.Join(entries, sep))
			}
		}
		row("acts at", texts(h.Stages), ", ")
		row("reads", h.Reads, "\n  \t")
		row("sets", texts(h.Sets), ", ")
		row("sets on the pod", texts(h.Pod), ", ")
		row("needs", alternatives(h.Kernel), "\n  \t")
		row("here", []string{h.Here}, "")
		row("beside others", []string{h.Compose}, "")
		if h.TestedOn != "" {
			row("tried on", []string{h.TestedOn}, "")
		}
		if err := t.Flush(); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
	}
	return nil
}

// alternatives writes "a|b" for people.
func alternatives(needs []string) []string {
	var out []string
	for _, n := range needs {
		out = append(out, strings.ReplaceAll(n, "|", " or "))
	}
	return out
}

func texts[T fmt.Stringer](list []T) []string {
	var out []string
	for _, s := range list {
		out = append(out, s.String())
	}
	return out
}
