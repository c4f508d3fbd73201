package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/report/status"
)

func newExplain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain NAMESPACE/POD[/CONTAINER]",
		Short: "Why a container has the values it has",
		Long: `Shows what the containers of a pod on this node were promised and got. For each
value: the hook that decided it, the annotation, label or configuration key it
comes from, the channel that carried it, and whether it is in force or why not.
Annotations that could not be read are listed with key, value and reason.`,
		Example: "  trimtab explain shop/web\n  trimtab explain shop/web/app -o yaml",
		Args:    cobra.ExactArgs(1),
	}
	socket := addSocket(cmd)
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		namespace, pod, container, err := reference(args[0])
		if err != nil {
			return err
		}
		return withClient(cmd.Context(), *socket, func(c *status.Client) error {
			found, err := c.Explain(cmd.Context(), namespace, pod, container)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			return out.Print(w, found, func() error {
				return status.RenderExplain(w, found, status.Options{Color: colors(w)})
			})
		})
	}
	return cmd
}

// reference splits NAMESPACE/POD[/CONTAINER].
func reference(s string) (namespace, pod, container string, err error) {
	parts := strings.Split(s, "/")
	bad := len(parts) < 2 || len(parts) > 3
	for _, p := range parts {
		bad = bad || p == ""
	}
	if bad {
		return "", "", "", &misuse{fmt.Errorf("%q is not NAMESPACE/POD or NAMESPACE/POD/CONTAINER", s)}
	}
	return parts[0], parts[1], strings.Join(parts[2:], ""), nil
}
