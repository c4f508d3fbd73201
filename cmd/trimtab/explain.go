package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/nearest"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/report/term"
)

func newExplain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain NAMESPACE/POD[/CONTAINER]",
		Short: "Show why a container has its values",
		Long: `Shows what the containers of a pod on this node requested and got: first whether all
decided values are in force, then the facts about the container. For each value it shows
the hook that decided the value, the annotation, label or configuration key from which the
value comes, and whether the value is in force or why not. The column CHANNEL says how the
value reached the container, such as by an NRI answer or by a write to a kernel file.
Annotations that could not be read are listed with key, value and reason. -o wide shows
values in the form of the kernel files.`,
		Example: "  trimtab explain shop/web\n  trimtab explain -n shop web\n  trimtab explain shop/web/app -o yaml",
		Args:    cli.Arguments(1, "NAMESPACE/POD[/CONTAINER]"),
	}
	socket := addSocket(cmd)
	out := cli.AddFormat(cmd, "table", "wide", "json", "yaml")
	in := cmd.Flags().StringP("namespace", "n", "", "the pod's namespace; the argument is then POD or POD/CONTAINER")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := args[0]
		if *in != "" {
			name = *in + "/" + name
		}
		namespace, pod, container, err := parseReference(name)
		if err != nil {
			return suggestNamespace(cmd.Context(), *socket, name, err)
		}
		width, _ := terminalWidth(cmd.OutOrStdout())
		return withClient(cmd.Context(), *socket, func(c *status.Client) error {
			found, err := c.Explain(cmd.Context(), namespace, pod, container)
			if err != nil {
				return suggestSimilarPods(cmd.Context(), c, namespace, pod, err)
			}
			w := cmd.OutOrStdout()
			return out.PrintList(w, "ContainerList", found, func() error {
				return status.RenderExplain(w, found, status.Options{Color: useColors(w), Wide: out.String() == "wide", Width: width})
			})
		})
	}
	cmd.ValidArgsFunction = completePods(in)
	_ = cmd.RegisterFlagCompletionFunc("namespace", completeNamespaces) // this fails only if the flag does not exist
	return cmd
}

// parseReference splits NAMESPACE/POD[/CONTAINER].
func parseReference(s string) (namespace, pod, container string, err error) {
	parts := strings.Split(s, "/")
	bad := len(parts) < 2 || len(parts) > 3
	for _, p := range parts {
		bad = bad || p == ""
	}
	if bad {
		return "", "", "", &usageError{fmt.Errorf("%q is not NAMESPACE/POD or NAMESPACE/POD/CONTAINER", s)}
	}
	return parts[0], parts[1], strings.Join(parts[2:], ""), nil
}

// suggestNamespace adds suggestions to err, the error about a name without namespace: the known pods with a similar
// name. It returns err unchanged if no agent answers or no pod has a similar name.
func suggestNamespace(ctx context.Context, socket, name string, err error) error {
	if name == "" || strings.Contains(name, "/") {
		return err
	}
	_ = withClient(ctx, socket, func(c *status.Client) error {
		n, failed := c.Status(ctx)
		if similar := similarPods(podsOf(n), "", name); failed == nil && len(similar) > 0 {
			err = &usageError{fmt.Errorf("%w; the agent knows %s", err, joinFirst(similar))}
		}
		return nil
	})
	return err
}

// maxSimilar is the largest number of similar pods in an error about an unknown pod.
const maxSimilar = 5

// suggestSimilarPods adds similar pods to the agent's error about an unknown pod. It returns other errors unchanged.
func suggestSimilarPods(ctx context.Context, c *status.Client, namespace, pod string, err error) error {
	unknown := (*status.RefusedError)(nil)
	if !errors.As(err, &unknown) || unknown.Status != http.StatusNotFound {
		return err
	}
	n, failed := c.Status(ctx)
	if failed != nil {
		return err
	}
	similar := similarPods(podsOf(n), namespace, pod)
	if len(similar) == 0 {
		return fmt.Errorf("%w; 'trimtab status' lists the pods that the agent knows", err)
	}
	return fmt.Errorf("%w; the agent knows %s", err, joinFirst(similar))
}

// similarPods returns the known pods that the user probably meant: pods with this name in any namespace, or else pods
// of the namespace with a similar name, or else all pods of the namespace. If the user gave no namespace, namespace is
// "", and similarPods returns pods with a similar name from all namespaces.
func similarPods(known []string, namespace, pod string) []string {
	same := slices.DeleteFunc(slices.Clone(known), func(p string) bool { return !strings.HasSuffix(p, "/"+pod) })
	if len(same) > 0 {
		return same
	}
	like := slices.DeleteFunc(slices.Clone(known), func(p string) bool {
		in, name, _ := strings.Cut(p, "/")
		_, d := nearest.Word(pod, []string{name})
		return d > len(pod)/3 || (namespace != "" && in != namespace)
	})
	if len(like) > 0 {
		return like
	}
	return slices.DeleteFunc(slices.Clone(known), func(p string) bool { return !strings.HasPrefix(p, namespace+"/") })
}

// joinFirst joins at most maxSimilar names with commas.
func joinFirst(names []string) string {
	if len(names) > maxSimilar {
		return strings.Join(names[:maxSimilar], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}

// podsOf lists the node's pods, as NAMESPACE/POD, sorted.
func podsOf(n api.Node) []string {
	var pods []string
	for _, c := range n.Containers {
		pods = append(pods, term.Clean(c.Pod))
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}
