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
		Long: `Runs the checks of 'trimtab doctor', and prints a short configuration with comments, or
writes it to a new file. The configuration has the attachment and the hooks. Its comments
name the hooks that this node does not support, and the problems that doctor found. It
reserves no CPUs for the system: add them yourself. The command replaces an existing file
only with --force.

With --observe, the configuration makes the agent change nothing: the agent only reports
where the node differs from its decisions. Keys that are left out have their defaults:
'trimtab config print' shows all keys.`,
		Example: "  trimtab config init\n  trimtab config init /etc/trimtab/config.yaml\n  trimtab config init --host-root /host",
		Args:    cli.Arguments(0, "FILE"),
	}
	var o doctor.Options
	addNodeFlags(cmd, &o)
	observe := cmd.Flags().Bool("observe", false, "write a configuration with mode: observe: the agent decides and reports, and changes nothing")
	force := cmd.Flags().Bool("force", false, "replace FILE if it exists")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		if o.HostRoot, err = filepath.Abs(o.HostRoot); err != nil {
			return &usageError{err}
		}
		o.ConfigFile = "/nonexistent" // no such file, so doctor checks the default configuration; most keys of the new file have their defaults
		c := config.Default()
		for _, path := range []*string{&c.Cgroup.Root, &c.Paths.Dev, &c.Paths.Sys, &c.Paths.Resctrl} {
			*path = filepath.Join(o.HostRoot, *path)
		}
		text := firstConfig(doctor.Run(cmd.Context(), o), hooksOnNode(c.Cgroup.Root, &c), *observe)
		if _, err := config.Parse("init", text); err != nil {
			return fmt.Errorf("the configuration that this command generated is invalid: %w", err)
		}
		if len(args) == 0 {
			return cli.Write(cmd.OutOrStdout(), text)
		}
		if err := writeNewFile(args[0], text, *force); err != nil {
			return &usageError{err}
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s; read this file, then start the agent\n", args[0])
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

// firstConfig returns the text of a first configuration file for a node. It uses the report of the command doctor about
// the node, and the list of all hooks (the agent's built-in policies). If observe is set, the file has mode: observe,
// with which the agent changes nothing.
func firstConfig(r doctor.Report, hooks []hookOnNode, observe bool) []byte {
	var b bytes.Buffer
	b.WriteString(modeline + "# Configuration of the Trimtab agent for this node, written by 'trimtab config init'.\n" +
		"# Keys that are left out have their defaults: 'trimtab config print' shows all, docs/config.md explains each.\n\n" +
		"apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n\n")
	if observe {
		writeComment(&b, "", "The agent changes nothing: 'trimtab observe' shows where the node differs from the agent's decisions. To apply the decisions, write mode: enforce and restart the agent.")
		b.WriteString("mode: observe\n\n")
	}
	attach, why := chooseAttachment(r)
	writeComment(&b, "", "How the agent reaches containers: nri, auto, cri or bypass. A systemd unit chooses by a flag such as --attach=nri, "+
		"which overrides this key (docs/node.md). "+why)
	fmt.Fprintf(&b, "attach: %s\n\n", attach)
	writeComment(&b, "", `CPUs for the system: a list such as "0-1". The empty list reserves no CPUs. Only you know how many CPUs the node's own services need: `+
		`write the kubelet's reservedSystemCPUs, or CPU 0 and its sibling thread. `+
		`No pod owns reserved CPUs. Pods of class system run on them. Pods without a class may also run on them if pools.hardReserved is false.`)
	b.WriteString("pools:\n  reserved: \"\"\n\n")
	writeComment(&b, "", "Who chooses the CPUs of pods that get CPUs of their own. With none, only a scheduler chooses. With pools, balloons or topology-aware, the agent chooses by this policy. "+
		"docs/placement.md compares the policies.")
	b.WriteString("placement:\n  policy: none\n\n")
	writeComment(&b, "", "Hooks, the agent's built-in policies. 'trimtab hooks NAME' shows what a hook reads and sets.")
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

// chooseAttachment chooses a value for the key attach from doctor's report about NRI. It also returns the reason.
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
		return "auto", "It is unknown whether NRI is available on this node (" + c.Found + "). If NRI is available, auto uses NRI; otherwise auto uses bypass."
	}
	return "auto", ""
}

// writeComment writes text as lines of a YAML comment.
func writeComment(b *bytes.Buffer, indent, text string) {
	for _, line := range term.Wrap(term.Clean(text), 98-len(indent)) {
		fmt.Fprintf(b, "%s# %s\n", indent, strings.TrimRight(line, " "))
	}
}
