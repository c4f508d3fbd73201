// Command guest runs the kernel script on the machine on which it is started, and prints the recording. It needs a
// machine for itself.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/test/kernel"
)

func main() {
	dir := flag.String("cgroup", "/sys/fs/cgroup", "where the hierarchies are mounted")
	task := flag.Bool("task", false, "run as a task of the script")
	out := flag.String("out", "/dev/stdout", "where to write the recording")
	flag.Parse()
	if *task {
		kernel.Task(os.Stdin, os.Stdout)
		return
	}
	if err := run(*dir, *out); err != nil {
		fmt.Fprintln(os.Stderr, "kernel script:", err)
		os.Exit(1)
	}
}

func run(dir, out string) error {
	tree, err := cgroup.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer tree.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	rec, err := kernel.Record(&kernel.Real{Real: tree, Dir: dir, TaskCommand: []string{self, "-task"}})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Clean(out), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := rec.Write(&text); err != nil {
		return err
	}
	if _, err := f.WriteString(text.String()); err != nil {
		return err
	}
	return f.Close()
}
