// Command size prints the size of the program: lines of code by package, methods and fields by type, and long
// functions. make size runs it. With -write, as in go generate, it writes the table of the core packages into
// ARCHITECTURE.md.
//
// It counts this module's packages in cmd/trimtab, without the simulator, fakes, tests and generated code. A line of
// code is one that is not blank and not only a comment. A type's methods are its own, those of embedded fields, and the
// functions of its package whose first parameter is a pointer to it. Its fields are its own and those of embedded
// structs of this module. A struct without a method on its pointer is plain data, which may have any number of fields.
package main

import (
	"flag"
	"fmt"
	"os"
)

//go:generate go run . -C ../../.. -write ARCHITECTURE.md

// The limits for types and functions.
const (
	maxMethods       = 45
	maxFields        = 20
	maxFunctionLines = 60
)

func main() {
	dir := flag.String("C", ".", "the module's directory")
	write := flag.String("write", "", "the file, below the module's directory, in which to write the table")
	flag.Parse()
	if err := run(*dir, *write); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

func run(dir, write string) error {
	s, err := measure(dir)
	if err != nil {
		return err
	}
	if write == "" {
		_, err = fmt.Print(s.report())
		return err
	}
	return rewriteTable(dir, write, s)
}
