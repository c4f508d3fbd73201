// Command size prints the size of the program: lines of code by package, methods and fields by type, and long
// functions. `make size` runs it. With the flag -write, it writes the table of the core packages into a file such as
// ARCHITECTURE.md.
//
// The command counts the packages of this module that cmd/trimtab imports, without the simulator, fakes, tests and
// generated code. It does not count lines that are blank or only a comment. The methods of a type include those of
// embedded fields, and the functions of the package whose first parameter is a pointer to the type. The fields of a type
// include those of embedded structs of this module. A struct without methods on its pointer is plain data. It may have
// any number of fields.
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
	write := flag.String("write", "", "write the table into this file, relative to the module's directory; empty prints all sizes")
	flag.Parse()
	if err := run(*dir, *write); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

// run measures the module in dir. It prints the report, or writes the table into tableFile if this is not empty.
func run(dir, tableFile string) error {
	s, err := measure(dir)
	if err != nil {
		return err
	}
	if tableFile == "" {
		_, err = fmt.Print(s.report())
		return err
	}
	return rewriteTable(dir, tableFile, s)
}
