// Package manpages writes the man pages of a tree of commands, and compares them with the pages in a directory. Only
// tests of the programs call this package, so that no program contains the generator.
package manpages

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Differences returns the differences between the pages that Write would write and the pages in a directory; "" if there is
// no difference.
func Differences(dir string, root *cobra.Command) (string, error) {
	want, err := pages(root)
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return "", err
	}
	have := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		have[filepath.Base(file)] = string(text)
	}
	return cmp.Diff(want, have), nil
}

// Write replaces the pages in a directory.
func Write(dir string, root *cobra.Command) error {
	all, err := pages(root)
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return err
	}
	for _, file := range old {
		err = errors.Join(err, os.Remove(file))
	}
	err = errors.Join(err, os.MkdirAll(dir, 0o755))
	for name, text := range all {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return err
}

// pages returns the text of each man page, by file name.
func pages(root *cobra.Command) (map[string]string, error) {
	root.DisableAutoGenTag = true
	root.CompletionOptions.DisableDefaultCmd = true // no page for the command completion: `help completion` describes it
	all := map[string]string{}
	var visit func(*cobra.Command) error
	visit = func(cmd *cobra.Command) error {
		if cmd.IsAdditionalHelpTopicCommand() && cmd.Name() != "exit-codes" || cmd.Name() == "help" {
			return nil
		}
		var b bytes.Buffer
		// The date is fixed, so that a page changes only if its command changes.
		when := time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		h := &doc.GenManHeader{Title: strings.ToUpper(name), Section: "1", Date: &when, Source: "Trimtab", Manual: "Trimtab"}
		if err := doc.GenMan(cmd, h, &b); err != nil {
			return fmt.Errorf("write the page of %s: %w", cmd.CommandPath(), err)
		}
		all[name+".1"] = b.String()
		for _, c := range cmd.Commands() {
			if err := visit(c); err != nil {
				return err
			}
		}
		return nil
	}
	return all, visit(root)
}
