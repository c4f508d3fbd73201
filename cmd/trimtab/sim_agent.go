package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/page"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/scenarios"
)

// pageAddress is the default address of the web page of a simulated node.
const pageAddress = "127.0.0.1:9464"

// serveFlags has the address of the web page of an agent on a simulated node, and the directory of this agent's
// configuration file.
type serveFlags struct {
	http string // address of the web page; "none" for no page, "" for the default
	dir  string // directory of the configuration file, created if it is missing; "" for the agent's temporary directory
}

// add adds the flags to a command.
func (s *serveFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.dir, "dir", "", "`directory` for the agent's configuration file; created if missing (default: a temporary one)")
	cmd.Flags().StringVar(&s.http, "http", "", "`address` of the web page; none for no page (default "+pageAddress+", or a free port)")
}

// playAndServe plays a scenario, or the demo if s is nil. It then prints commands that reach the agent, and keeps the
// agent running until ctx ends. The functions in more change the options of the simulation before the start.
func playAndServe(ctx context.Context, s *scenario.Scenario, out io.Writer, to serveFlags, more ...func(*sim.RunOptions)) (err error) {
	if s == nil {
		if s, err = scenario.Parse(scenarios.Demo); err != nil {
			return fmt.Errorf("parse the built-in demo scenario: %w", err)
		}
	}
	ctx, stop := untilHangup(ctx)
	defer stop()
	address, err := freeAddress(to.http)
	if err != nil {
		return &usageError{err}
	}
	if to.dir != "" { // report an error here, before the steps are played
		if err := os.MkdirAll(to.dir, 0o755); err != nil {
			return &usageError{fmt.Errorf("--dir: %w; name a directory that this user may write to", err)}
		}
	}
	more = append(more, func(o *sim.RunOptions) {
		o.Configure = func(c *config.Config) {
			c.HTTP.Address, c.HTTP.Page = address, address != ""
		}
		o.AfterLastStep = func(ctx context.Context, dir string, c config.Config, node api.Node) error {
			file, err := filepath.Abs(filepath.Join(cmp.Or(to.dir, dir), "config.yaml"))
			if err != nil {
				return err
			}
			if err := os.WriteFile(file, config.Print(c), 0o600); err != nil {
				return err
			}
			if err := cli.Write(out, []byte(suggestedCommands(file, address, node))); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		}
	})
	err = playScenario(ctx, s, out, more...)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil // the user has interrupted the command
	}
	return err
}

// suggestedCommands returns the text with the commands that a user can try while the agent runs.
func suggestedCommands(file, address string, node api.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe agent stays on this node. In another terminal:\n\n  export %s=%s\n", configVariable, file)
	commands := []string{"status", "top", "events", "plan PODS.yaml"}
	if len(node.Containers) > 0 {
		commands = append(commands, "explain "+node.Containers[0].Pod)
	}
	for _, command := range commands {
		fmt.Fprintf(&b, "  trimtab %s\n", command)
	}
	if address != "" {
		fmt.Fprintf(&b, "\nThe web page of the agent: http://%s%s\n", address, page.Path)
	}
	b.WriteString("\nThe file only says where the agent's socket is: changes in the file have no effect. To try another configuration,\n" +
		"set config: in a scenario. All steps have been played, so 'trimtab events' shows past events and no new ones. An\n" +
		"example with new events is in docs/demos/inspect-events.md.\n")
	b.WriteString("Interrupt (Ctrl-C) to stop it.\n")
	return b.String()
}

// freeAddress returns an address on which the web page can listen: the address in the flag --http, or the default
// address, or a free port if another program uses the default address. It returns "" if the flag is none.
func freeAddress(flag string) (string, error) {
	switch flag {
	case "none":
		return "", nil
	case "":
		if free, err := tryAddress(pageAddress); err == nil {
			return free, nil
		}
		return tryAddress("127.0.0.1:0")
	}
	free, err := tryAddress(flag)
	if err != nil {
		return "", fmt.Errorf("--http %s: %w", flag, err)
	}
	return free, nil
}

// tryAddress checks that a program can listen on an address. It returns the address, with a free port in place of port
// 0.
func tryAddress(address string) (string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
