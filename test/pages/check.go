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

// words are the words without a value. The last two belong to test/vm/install, which runs a block on nodes.
func words() []string {
	return []string{"agent", "interrupt", "background", "manual", "node", "forward"}
}

var placeholder = regexp.MustCompile(`^\[?[A-Za-z][A-Za-z0-9/._-]*\]?=.+$`)

// Check returns the errors in a block's words: an unknown word, or a test in by= that does not exist.
func (b Block) Check(root string) error {
	for _, w := range b.Words {
		name, value, _ := strings.Cut(w, "=")
		switch {
		case slices.Contains(words(), w), name == "agent":
		case name == "exit":
			if _, err := strconv.Atoi(value); err != nil {
				return fmt.Errorf("%q is no exit code", w)
			}
		case name == "by":
			if err := exists(root, value); err != nil {
				return err
			}
		case !placeholder.MatchString(w):
			return fmt.Errorf("unknown word %q after the language of the fence", w)
		}
	}
	if b.Has("background") && (len(b.Commands) != 1 || b.Commands[0].Want == nil) {
		return fmt.Errorf("background is for a console with one command, and what it prints when it is ready")
	}
	return nil
}

// exists finds the test that runs a block, by its folder and name.
func exists(root, test string) error {
	if test == ".ci/run" {
		return nil
	}
	dot := strings.LastIndex(test, ".Test")
	if dot < 0 {
		return fmt.Errorf("by=%s is no test: write its folder and name, such as by=test/real.TestPools", test)
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
