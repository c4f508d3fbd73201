package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/fleet"
	"github.com/trimtab/trimtab/internal/report/term"
)

// newEvents returns the command events, which prints the journals of agents.
func newEvents(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events [NODE]",
		Short: "Show what agents decided for each event",
		Long: `Prints the agents' journals. With NODE, it prints what 'trimtab events' prints on that
node. Without NODE, it prints a line for each event of all nodes, sorted by time. With
-o json each line is one event, with the node's name. With -f it continues with new events
until the user interrupts it.`,
		Example: "  kubectl trimtab events worker-1 -f\n  kubectl trimtab events -o json | jq 'select(.problems)'",
		Args:    cli.Arguments(0, "NODE"),
	}
	out := cli.AddFormat(cmd, "table", "json")
	follow := cmd.Flags().BoolP("follow", "f", false, "continue with new events until interrupted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ask := []string{"events", fmt.Sprintf("--follow=%t", *follow)}
		if len(args) == 1 && out.String() == "table" {
			return p.streamFromAgent(cmd, args[0], ask)
		}
		c, found, err := p.connectToAll(cmd.Context())
		if err != nil {
			return err
		}
		nodes := found.NodesWithAgent()
		if len(args) == 1 {
			n, err := found.Node(args[0])
			if err != nil {
				return err
			}
			nodes = []fleet.Node{n}
		}
		s := &eventPrinter{cluster: c, out: cmd.OutOrStdout(), asJSON: out.String() == "json", args: append(ask, "-o", "json")}
		if *follow {
			p.timeout, p.maxParallel = 0, max(len(nodes), 1)
		}
		return s.print(cmd, p, nodes, *follow)
	}
	return cmd
}

// streamFromAgent runs the agent's program and prints its output, until the program ends or the user interrupts it.
func (p *plugin) streamFromAgent(cmd *cobra.Command, node string, args []string) error {
	c, a, err := p.connectToNode(cmd.Context(), node)
	if err != nil {
		return err
	}
	err = c.Run(cmd.Context(), a, args, fleet.Streams{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()})
	return ignoreInterrupt(cmd.Context(), err)
}

// ignoreInterrupt returns nil if the user has interrupted the command. It returns a *printedError if the agent's
// program has already printed the error.
func ignoreInterrupt(ctx context.Context, err error) error {
	var exit *fleet.ExitError
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the user has interrupted the command
	case errors.As(err, &exit):
		return &printedError{exit.Code}
	}
	return err
}

// event is an event in the journal of a node's agent.
type event struct {
	Time      time.Time `json:"time"`
	Kind      string    `json:"kind"` // such as CreateContainer
	Pod       string    `json:"pod"`
	Container string    `json:"container"`
	Changed   []string  `json:"changed"` // what other containers lost or got
	Problems  []struct {
		Key    string `json:"key"`    // the annotation or label that has the problem
		Reason string `json:"reason"` // what the problem is
	} `json:"problems"`
	Rejected string `json:"rejected"` // why the agent refused the pod or container; "" if it did not

	node string                     // the node of the agent
	raw  map[string]json.RawMessage // all fields of the event
}

// eventPrinter prints the events of many nodes.
type eventPrinter struct {
	cluster *fleet.Cluster
	asJSON  bool
	args    []string // the arguments of the agent's program

	mu  sync.Mutex // guards out, because all nodes write at the same time
	out io.Writer
}

// print prints the events of the nodes' agents: as they arrive if follow is set, and sorted by time otherwise.
func (j *eventPrinter) print(cmd *cobra.Command, p *plugin, nodes []fleet.Node, follow bool) error {
	type answer struct {
		events []event
		err    error
	}
	all := fleet.ForEachNode(cmd.Context(), nodes, p.maxParallel, func(ctx context.Context, n fleet.Node) (a answer) {
		handle := func(e event) error { a.events = append(a.events, e); return nil }
		if follow {
			handle = j.write
		} else {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, p.timeout)
			defer cancel()
		}
		a.err = j.read(ctx, n, handle)
		return a
	}, nil)
	var events []event
	silent := 0
	for i, a := range all {
		events = append(events, a.events...)
		if a.err != nil && cmd.Context().Err() == nil {
			silent++
			warn(cmd, "node %s: %v", nodes[i].Name, a.err)
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.node, b.node)) })
	for _, e := range events {
		if err := j.write(e); err != nil {
			return err
		}
	}
	if silent > 0 {
		return &fleet.UnreachableError{Reason: fmt.Sprintf("%d of %d agents did not answer", silent, len(nodes))}
	}
	return nil
}

// read runs the agent's program on a node, and calls handle for each event that the program prints.
func (j *eventPrinter) read(ctx context.Context, n fleet.Node, handle func(event) error) error {
	if why := n.WhyUnreachable(); why != "" {
		return &fleet.UnreachableError{Reason: why}
	}
	r, w := io.Pipe()
	var words bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		err := j.cluster.Run(ctx, n.Agent, j.args, fleet.Streams{Out: w, Err: &words})
		var exit *fleet.ExitError
		if errors.As(err, &exit) {
			exit.Message = strings.TrimSpace(words.String())
		}
		ended <- err
		w.CloseWithError(err) // if err is nil, the reader gets io.EOF
	}()
	err := decodeEvents(n.Name, r, handle)
	r.CloseWithError(err)
	if ran := <-ended; ran != nil {
		return ran
	}
	return err
}

// decodeEvents decodes JSON events of a node from r, and calls handle for each event.
func decodeEvents(node string, r io.Reader, handle func(event) error) error {
	for in := json.NewDecoder(bufio.NewReader(r)); ; {
		e := event{node: node}
		switch err := in.Decode(&e.raw); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read events: %w", err)
		}
		whole, err := json.Marshal(e.raw)
		if err == nil {
			err = json.Unmarshal(whole, &e)
		}
		if err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		if err := handle(e); err != nil {
			return err
		}
	}
}

// write prints one event.
func (j *eventPrinter) write(e event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.asJSON {
		return cli.Write(j.out, []byte(e.String()+"\n"))
	}
	name, err := json.Marshal(e.node)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	e.raw["node"] = name
	b, err := json.Marshal(e.raw)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	return cli.Write(j.out, append(b, '\n'))
}

// String formats an event as one line.
func (e event) String() string {
	s := fmt.Sprintf("%s %s %s", e.Time.Local().Format("2006-01-02 15:04:05.000"), e.node, e.Kind)
	if e.Pod != "" {
		s += " " + strings.TrimSuffix(e.Pod+"/"+e.Container, "/")
	}
	if e.Rejected != "" {
		s += "; refused: " + e.Rejected
	}
	for _, p := range e.Problems {
		s += "; problem: " + strings.TrimPrefix(p.Key+": "+p.Reason, ": ")
	}
	for _, c := range e.Changed {
		s += "; " + c
	}
	return term.Clean(s)
}
