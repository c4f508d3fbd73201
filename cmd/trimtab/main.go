// Command trimtab is the node agent, and the command that users run on a node. Each subcommand has its own file.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

//go:generate go test -run ^Test(Docs|Man|Picture)$ . -update

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, invocation{
		name: os.Args[0], args: os.Args[1:], launched: os.Getenv(pluginSocket) != "",
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
	})
	stop()
	os.Exit(code)
}
