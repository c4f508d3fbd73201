package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// made is what is known of how this program was made.
type made struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersion(*plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print what this program was built from",
		Long:    "Prints version and commit of the plugin. 'kubectl trimtab nodes' prints those of the agents.",
		Example: "  kubectl trimtab version\n  kubectl trimtab version -o json",
		Args:    cobra.NoArgs,
	}
	out := addFormat(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b := build()
		return out.print(cmd.OutOrStdout(), b, func() error {
			return write(cmd.OutOrStdout(), fmt.Appendf(nil, "kubectl-trimtab %s %s %s %s\n", b.Version, b.Commit, b.Go, b.Platform))
		})
	}
	return cmd
}

func build() made {
	b := made{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = s.Value
		}
	}
	return b
}
