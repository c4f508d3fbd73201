// Command size prints how large the program is: lines of code by package, methods and fields by type, and long
// functions. make size runs it; with -write it puts the heart's table into ARCHITECTURE.md, which go generate does.
//
// Counted is what the binary is made of: this module's packages that cmd/trimtab needs, without the simulator, fakes,
// tests and generated code. A line of code has something on it that is neither blank nor a comment. A type's methods are
// those it has or inherits from embedded fields, and the functions of its package whose first parameter is a pointer to it. Its
// fields are its own and those of embedded structs of this module. A struct without a method on its pointer is plain
// data, which may have any number of fields.
package main

import (
	"flag"
	"fmt"
	"os"
)

//go:generate go run . -C ../../.. -write ARCHITECTURE.md

// The bounds that types and functions keep.
const (
	mostMethods = 45
	mostFields  = 20
	longest     = 60
)

func main() {
	dir := flag.String("C", ".", "the module's directory")
	write := flag.String("write", "", "the file, below the module's directory, whose table is written anew")
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
	return rewrite(dir, write, s)
}
