package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestExamplesParse: the examples of each command are valid command lines.
func TestExamplesParse(t *testing.T) {
	first, _ := newRoot()
	var examples []string
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		examples = append(examples, strings.Split(cmd.Example, "\n")...)
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(first)
	count := 0
	for _, line := range examples {
		for _, part := range strings.Split(strings.Split(line, " >")[0], "|") {
			words := fields(part)
			if len(words) == 0 || words[0] != "trimtab" {
				continue
			}
			count++
			root, _ := newRoot()
			root.InitDefaultCompletionCmd()
			cmd, rest, err := root.Find(words[1:])
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil && cmd.Args != nil {
				err = cmd.Args(cmd, cmd.Flags().Args())
			}
			if err != nil {
				t.Errorf("%q: %v", strings.TrimSpace(line), err)
			}
		}
	}
	if count < 30 {
		t.Errorf("found %d examples", count)
	}
}

// fields splits a command line at spaces outside of double quotes, without a comment.
func fields(line string) (words []string) {
	for i, part := range strings.Split(strings.TrimSpace(line), `"`) {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		text, _, comment := strings.Cut(part, "#")
		words = append(words, strings.Fields(text)...)
		if comment {
			break
		}
	}
	return words
}
