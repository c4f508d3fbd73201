// Command kubectl-trimtab asks the agents of a cluster, and rolls configurations out to them. kubectl runs
// it as `kubectl trimtab` if it is in PATH. It runs the agents' own program in their pods (pods/exec).
package main

import (
	"context"
	"flag"
	"io"
	"os"
	"os/signal"
	"syscall"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubeconfig files with oidc
	"k8s.io/klog/v2"
)

//go:generate go test -run ^Test(Docs|Man)$ . -update

func main() {
	// client-go logs errors and also returns them; the commands print the returned errors.
	klog.SetOutput(io.Discard)
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		_ = flags.Set(name, value) // cannot fail: the lines above made both flags
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}
