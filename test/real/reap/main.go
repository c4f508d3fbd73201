// Command reap cleans up after a test that ended without its own cleanup (timeout, crash, Ctrl-C). The test harness
// starts reap with a pipe on standard input. A byte in the pipe means that the test has cleaned up. If the pipe is closed
// without a byte, reap kills the test's runtime and containers, and removes their cgroups and the directory DIR.
//
//	reap DIR CGROUP_PARENT
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/trimtab/trimtab/test/real/internal/host"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: reap DIR CGROUP_PARENT")
		os.Exit(2)
	}
	if message, _ := io.ReadAll(os.Stdin); len(message) > 0 {
		return
	}
	if err := host.Sweep(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "reap:", err)
		os.Exit(1)
	}
}
