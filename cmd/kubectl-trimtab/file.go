package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// addFileFlag adds the flag -f to a command. of says what the file contains.
func addFileFlag(cmd *cobra.Command, of string) *string {
	file := cmd.Flags().StringP("filename", "f", "", "the `file` with the "+of+"; - is standard input (required)")
	// This fails only if the flag does not exist, and the line above has added it.
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return file
}

// readInput reads a file, or standard input if file is "-".
func readInput(file string, in io.Reader) ([]byte, error) {
	if file == "" {
		return nil, &usageError{errors.New("-f is required: name the file to read, or - for standard input")}
	}
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, &usageError{err}
		}
		defer f.Close()
		in = f
	}
	b, err := readLimited(in)
	if err != nil {
		return nil, &usageError{fmt.Errorf("read %s: %w", file, err)}
	}
	return b, nil
}
