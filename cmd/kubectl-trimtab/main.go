// Command kubectl-trimtab queries the Trimtab agents of a cluster, and rolls out configurations to them. If
// kubectl-trimtab is in a directory of PATH, `kubectl trimtab` runs it. To query an agent, it runs the program trimtab
// in the agent's pod (pods/exec).
package main

import (
	"context"
	"flag"
	"io"
	"os"
	"os/signal"
	"syscall"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // for kubeconfig files whose users authenticate by OIDC
	"k8s.io/klog/v2"
)

//go:generate go test -run ^Test(Docs|Man)$ . -update

func main() {
	// client-go logs errors and also returns them. Discard the log, because the commands print the returned errors.
	klog.SetOutput(io.Discard)
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		_ = flags.Set(name, value) // cannot fail: klog.InitFlags has added both flags
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}
