package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/report/status"
)

// completePods completes the pods that the agent knows, as NAMESPACE/POD, or as POD if *namespace is not "".
func completePods(namespace *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		pods := knownPods(cmd)
		if *namespace == "" {
			return pods, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, p := range pods {
			if name, ok := strings.CutPrefix(p, *namespace+"/"); ok {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNamespaces completes the namespaces of the pods that the agent knows.
func completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var namespaces []string
	for _, p := range knownPods(cmd) {
		namespace, _, _ := strings.Cut(p, "/")
		namespaces = append(namespaces, namespace)
	}
	return slices.Compact(namespaces), cobra.ShellCompDirectiveNoFileComp // the pods are sorted, so equal namespaces are neighbours
}

// knownPods asks the agent for its pods, as NAMESPACE/POD, sorted. It returns nil if no agent answers within a second.
func knownPods(cmd *cobra.Command) (pods []string) {
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	socket := cmd.Flag("socket").Value.String()
	if socket == "" {
		socket, _ = statusSocket(cmd.Flag("config").Value.String())
	}
	_ = withClient(ctx, socket, func(c *status.Client) error {
		n, err := c.Status(ctx)
		pods = podsOf(n)
		return err
	})
	return pods
}

// completeValues adds completion for the flags of a command. values has the valid values of each flag.
func completeValues(cmd *cobra.Command, values map[string][]string) {
	for flag, choices := range values {
		// This fails only if the flag does not exist or already has a completion.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
	}
}
