package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/hook"
)

func newHooks() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hooks",
		Short: "The policies built in: what each reads, sets and needs",
		Long: `Lists every hook with the lifecycle steps it acts at, the labels and annotations it
reads, the values it sets, the kernel features it needs, and how it gets along
with other hooks. -o json and -o yaml also say where a hook knowingly does
otherwise than the system whose annotations it reads.`,
		Example: "  trimtab hooks\n  trimtab hooks -o yaml",
		Args:    cobra.NoArgs,
	}
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		w := cmd.OutOrStdout()
		return out.print(w, hook.Catalogue(), func() error { return hookTable(w, hook.Catalogue()) })
	}
	return cmd
}

// hookTable shows one block per hook: the lists are too long for columns.
func hookTable(w io.Writer, hooks []hook.Info) error {
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
		row("needs", h.Kernel, "\n  \t")
		row("beside others", []string{h.Compose}, "")
		if err := t.Flush(); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
	}
	return nil
}

func texts[T fmt.Stringer](list []T) []string {
	var out []string
	for _, s := range list {
		out = append(out, s.String())
	}
	return out
}
