package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// addFileFlag adds the flag -f to a command. The parameter content says what the file contains, for the help text.
func addFileFlag(cmd *cobra.Command, content string) *string {
	file := cmd.Flags().StringP("filename", "f", "", "the `file` with the "+content+"; - is standard input (required)")
	// MarkFlagFilename fails only if the flag does not exist, and the line above has added the flag.
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return file
}

// readInput reads a file, or stdin if file is "-".
func readInput(file string, stdin io.Reader) ([]byte, error) {
	if file == "" {
		return nil, &usageError{errors.New("-f is required: name the file to read, or - for standard input")}
	}
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, &usageError{err}
		}
		defer f.Close()
		stdin = f
	}
	b, err := readLimited(stdin)
	if err != nil {
		return nil, &usageError{fmt.Errorf("read %s: %w", file, err)}
	}
	return b, nil
}
