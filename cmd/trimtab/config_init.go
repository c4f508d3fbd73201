package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/doctor"
	"github.com/trimtab/trimtab/internal/report/term"
)

// modeline is a comment for editors with a YAML language server. It has the URL of the configuration's schema.
const modeline = "# yaml-language-server: $schema=https://raw.githubusercontent.com/trimtab/trimtab/main/docs/config.schema.json\n"

func newConfigInit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a first configuration for this node, with comments",
		Long: `Asks doctor what this node has, and writes a short configuration with comments: how to
attach, which hooks are enabled and which this node does not support, and the problems
that doctor found. It reserves no CPUs for the system: add them yourself. It prints the
configuration, or writes a new file. It replaces an existing file only with --force.

With --observe the agent changes nothing, and reports where the node differs from its
decisions. Keys that are left out have their defaults: 'trimtab config print' shows all.`,
		Example: "  trimtab config init\n  trimtab config init /etc/trimtab/config.yaml\n  trimtab config init --host-root /host",
		Args:    cli.Arguments(0, "FILE"),
	}
	var o doctor.Options
	addNodeFlags(cmd, &o)
	observe := cmd.Flags().Bool("observe", false, "decide and report, and change nothing (mode: observe)")
	force := cmd.Flags().Bool("force", false, "replace FILE if it exists")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		if o.HostRoot, err = filepath.Abs(o.HostRoot); err != nil {
			return &usageError{err}
		}
		o.ConfigFile = "/nonexistent" // use the defaults, from which the new file starts
		c := config.Default()
		for _, path := range []*string{&c.Cgroup.Root, &c.Paths.Dev, &c.Paths.Sys, &c.Paths.Resctrl} {
			*path = filepath.Join(o.HostRoot, *path)
		}
		text := firstConfig(doctor.Run(cmd.Context(), o), hooksOnNode(c.Cgroup.Root, &c), *observe)
		if _, err := config.Parse("init", text); err != nil {
			return fmt.Errorf("the configuration that the command made is invalid: %w", err)
		}
		if len(args) == 0 {
			return cli.Write(cmd.OutOrStdout(), text)
		}
		if err := writeNewFile(args[0], text, *force); err != nil {
			return &usageError{err}
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s; read it, then start the agent\n", args[0])
		return nil
	}
	return cmd
}

// writeNewFile writes a file, and creates its directory if it is missing. It replaces an existing file only if force is
// set.
func writeNewFile(name string, text []byte, force bool) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // a configuration is no secret
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if !force {
		flags |= os.O_EXCL
	}
	f, err := os.OpenFile(name, flags, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already: name another file, or replace it with --force", name)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// firstConfig returns a configuration for a node, from doctor's report and the hooks that the node supports.
func firstConfig(r doctor.Report, hooks []hookOnNode, observe bool) []byte {
	var b bytes.Buffer
	b.WriteString(modeline + "# Configuration of the Trimtab agent for this node, written by 'trimtab config init'.\n" +
		"# Keys that are left out have their defaults: 'trimtab config print' shows all, docs/config.md explains each.\n\n" +
		"apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n\n")
	if observe {
		writeComment(&b, "", "Nothing is changed: 'trimtab observe' says where the node differs. To put decisions in force, write enforce and restart the agent.")
		b.WriteString("mode: observe\n\n")
	}
	attach, why := chooseAttachment(r)
	writeComment(&b, "", "How the agent reaches containers: nri, auto, cri or bypass. A systemd unit chooses by a flag such as --attach=nri, "+
		"which overrides this key (docs/node.md). "+why)
	fmt.Fprintf(&b, "attach: %s\n\n", attach)
	writeComment(&b, "", `CPUs for the system: a list such as "0-1". It is empty, which reserves none, since only you know how many the node's own services need: `+
		`write as many as the kubelet's reservedSystemCPUs, or CPU 0 and its sibling thread. `+
		`No pod owns them. Only pods of class system run on them, and pods without a class, unless pools.hardReserved is true.`)
	b.WriteString("pools:\n  reserved: \"\"\n\n")
	writeComment(&b, "", "Who chooses CPUs for pods that own some: none (only a scheduler that assigned them), or the agent by the policy pools, balloons or topology-aware. "+
		"docs/placement.md compares them.")
	b.WriteString("placement:\n  policy: none\n\n")
	writeComment(&b, "", "Policies. 'trimtab hooks NAME' says what each reads and sets.")
	b.WriteString("hooks:\n")
	for i := range hooks {
		h := &hooks[i]
		text := h.About
		if h.finding.Why != "" {
			text += " (on this node: " + h.Here + ")"
		}
		writeComment(&b, "  ", text)
		fmt.Fprintf(&b, "  %s: {enabled: %v}\n", h.Name, h.Enabled)
	}
	first := true
	for _, c := range r.Checks {
		if c.Result != doctor.Problem || c.Name == "agent" {
			continue
		}
		if first {
			b.WriteString("\n# What 'trimtab doctor' found on this node:\n")
			first = false
		}
		writeComment(&b, "", fmt.Sprintf("* %s: %s. To do: %s", c.Name, strings.TrimSuffix(c.Found, "."), c.Do))
	}
	return b.Bytes()
}

// chooseAttachment chooses the attachment from doctor's report about NRI. It also returns the reason.
func chooseAttachment(r doctor.Report) (attach, why string) {
	for _, c := range r.Checks {
		if c.Name != "nri" {
			continue
		}
		switch c.Result {
		case doctor.OK:
			return "nri", "Here: " + c.Found + "."
		case doctor.Problem:
			return "auto", "NRI is not available on this node (" + c.Found + "). Until it is available, auto uses bypass. To do: " + c.Do + "."
		}
		return "auto", "It is unknown whether NRI is available on this node (" + c.Found + "). If it is, auto uses it; otherwise auto uses bypass."
	}
	return "auto", ""
}

// writeComment writes text as lines of a YAML comment.
func writeComment(b *bytes.Buffer, indent, text string) {
	for _, line := range term.Wrap(term.Clean(text), 98-len(indent)) {
		fmt.Fprintf(b, "%s# %s\n", indent, strings.TrimRight(line, " "))
	}
}
