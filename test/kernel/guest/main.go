// Command guest runs the script of test/kernel/script on the kernel of this machine, and writes the recording of the
// kernel's answers. The script changes the root cgroups and takes CPUs offline, so it needs a machine of its own.
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
	dir := flag.String("cgroup", "/sys/fs/cgroup", "directory where the cgroup hierarchies are mounted")
	task := flag.Bool("task", false, "run as a task of the script, which uses memory; the program starts itself with this flag")
	out := flag.String("out", "/dev/stdout", "file for the recording")
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

// run runs the script in the cgroup hierarchies below dir, and writes the recording to the file out.
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
