package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// wordsWithoutValue returns those words after the language of a fence that can stand without a value. The words node and forward
// are for package test/vm/install, which runs the block of a page on the nodes of a cluster.
func wordsWithoutValue() []string {
	return []string{"agent", "interrupt", "background", "manual", "node", "forward"}
}

// placeholderPattern matches a word of the form PLACEHOLDER=value, such as NAMESPACE/POD=shop/db. The value replaces
// the text before the = in the commands of the page.
var placeholderPattern = regexp.MustCompile(`^\[?[A-Za-z][A-Za-z0-9/._-]*\]?=.+$`)

// Check returns an error if one of the block's words is unknown or has a wrong value. It also returns an error if the
// word by names a test that does not exist. root is the directory of the repository.
func (b Block) Check(root string) error {
	for _, w := range b.Words {
		name, value, _ := strings.Cut(w, "=")
		switch {
		case slices.Contains(wordsWithoutValue(), w), name == "agent":
		case name == "exit":
			if _, err := strconv.Atoi(value); err != nil {
				return fmt.Errorf("%q is not an exit code", w)
			}
		case name == "by":
			if err := checkTestExists(root, value); err != nil {
				return err
			}
		case !placeholderPattern.MatchString(w):
			return fmt.Errorf("unknown word %q after the language of the fence", w)
		}
	}
	if b.Has("background") && (len(b.Commands) != 1 || b.Commands[0].Want == nil) {
		return fmt.Errorf("the word %q needs a console block with one command, and with the output that the command prints when it is ready; the block has %d commands", "background", len(b.Commands))
	}
	return nil
}

// checkTestExists returns an error if there is no such test. The parameter test is the folder and name of the test, such as
// test/real.TestPools, or .ci/run.
func checkTestExists(root, test string) error {
	if test == ".ci/run" {
		return nil
	}
	dot := strings.LastIndex(test, ".Test")
	if dot < 0 {
		return fmt.Errorf("by=%s is not a test: write the folder and name of a test, such as by=test/real.TestPools", test)
	}
	files, err := filepath.Glob(filepath.Join(root, test[:dot], "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.Contains(string(text), "\nfunc "+test[dot+1:]+"(") {
			return nil
		}
	}
	return fmt.Errorf("by=%s: the package %s has no test of this name", test, test[:dot])
}
