package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build is what is known of how this program was made.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from a changed tree
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print what this program was built from",
		Long:    "Prints version and commit, as the Go toolchain recorded them when building.",
		Example: "  trimtab version\n  trimtab version -o json",
		Args:    cobra.NoArgs,
	}
	out := addFormat(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b := thisBuild()
		return out.print(cmd.OutOrStdout(), b, func() error {
			return write(cmd.OutOrStdout(), []byte(b.String()+"\n"))
		})
	}
	return cmd
}

func thisBuild() build {
	b := build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String is the version as one line.
func (b build) String() string {
	s := "trimtab " + b.Version
	if b.Commit != "" {
		s += " commit " + b.Commit
	}
	if b.Modified {
		s += " (modified)"
	}
	return fmt.Sprintf("%s %s %s", s, b.Go, b.Platform)
}
