package sim

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	kjson "sigs.k8s.io/json"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/cpumap"
	"github.com/trimtab/trimtab/internal/report/term"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology/captured"
)

// defaultScenario is the scenario that Serve plays if ServeOptions.Scenario is nil.
//
//go:embed serve.yaml
var defaultScenario []byte

// ServeOptions are the options of Serve.
type ServeOptions struct {
	Out    io.Writer
	Color  bool
	Width  int
	Socket string // the path of the socket to which plugins connect
	// Scenario is played each time a plugin connects. The scenario's configuration, restarts and wants have no effect.
	// nil means the embedded serve.yaml.
	Scenario *scenario.Scenario
	// Captured is the node that was captured from a real machine, if the scenario names such a node; nil for other
	// scenarios.
	Captured *captured.Node
	Log      *slog.Logger
}

// Serve serves the embedded runtime's NRI socket until ctx ends. For each plugin that connects it plays the scenario
// and prints every event, the plugin's answers and the resulting state.
func Serve(ctx context.Context, o ServeOptions) (err error) {
	s := o.Scenario
	if s == nil {
		if s, err = scenario.Parse(defaultScenario); err != nil {
			return fmt.Errorf("serve the embedded runtime: %w", err)
		}
	}
	m, err := Machine(s.Node, o.Captured)
	if err != nil {
		return fmt.Errorf("serve the embedded runtime: %w", err)
	}
	machine, kernel, version, err := newKernel(s.Node, m)
	if err != nil {
		return fmt.Errorf("serve the embedded runtime: %w", err)
	}
	v := newView(o.Out, o.Color, o.Width)
	connected := make(chan struct{}, 1)
	r, err := NewRuntime(Options{
		Machine: machine, Kernel: kernel, Version: version, Driver: Driver(s.Node.Driver),
		Socket: o.Socket, Log: o.Log, Seed: s.Name, KnowsCDI: knownCDIDevices(s),
		Observe: func(e Event) {
			v.printEvent(e)
			if e.Kind != "Synchronize" || e.Err != nil {
				return
			}
			select {
			case connected <- struct{}{}:
			default: // another plugin has just connected, and the scenario is played once for both plugins
			}
		},
	})
	if err != nil {
		return fmt.Errorf("serve the embedded runtime: %w", err)
	}
	if err := r.Start(ctx); err != nil {
		return fmt.Errorf("serve the embedded runtime: %w", err)
	}
	defer r.Stop()
	v.printTitle(s, machine)
	v.printf("plugins can connect to %s; interrupt (Ctrl-C) to stop", o.Socket)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-connected:
		}
		if err := v.playForPlugin(ctx, r, s); err != nil && ctx.Err() == nil {
			v.printf("   %s %s", v.ink.Paint(term.BoldRed, "✗"), err)
		}
	}
}

// playForPlugin removes all pods and plays the scenario again. It prints errors of steps and continues.
func (v *view) playForPlugin(ctx context.Context, r *Runtime, s *scenario.Scenario) error {
	var errs []error
	for _, ref := range r.Pods() {
		errs = append(errs, r.RemovePodSandbox(ctx, ref))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range s.Steps {
		step := &s.Steps[i]
		if step.Restart != "" || len(step.Reconfigure) > 0 {
			continue // such a step needs Trimtab's agent
		}
		v.printf("\n%s %s", v.ink.Paint(term.BoldBlue, fmt.Sprintf("%2d", i+1)), v.ink.Paint(term.Bold, step.Name))
		if err := actOn(ctx, r, step); err != nil {
			v.printf("   %s %s", v.ink.Paint(term.BoldRed, "✗"), err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		v.printf("")
		v.printState(plainRows(r), cpumap.NewTiles(poolOf(r), r.usedCPUs()))
	}
	v.printf("\nthe scenario was played; waiting for the next plugin")
	return nil
}

// plainRows returns the table rows of all containers. The rows have no reasons, because a plugin explains no decisions.
func plainRows(r *Runtime) []tableRow {
	var rows []tableRow
	for _, c := range r.Containers() {
		if now, err := r.State(c.Ref); err == nil {
			requested := c.Request.Resources
			row := tableRow{cells: containerCells(c, now, now, true)}
			if requested.CPUs != "" && !sameList(requested.CPUs, now.CPUs) {
				row.remarks = []string{"requested CPUs " + requested.CPUs}
			}
			row.remarks = append(row.remarks, extraLines(now)...)
			rows = append(rows, row)
		}
	}
	return rows
}

// usualMounts are the destinations of mounts that every container has.
var usualMounts = map[string]bool{"/proc": true, "/dev": true, "/sys": true, "/sys/fs/cgroup": true}

// extraLines returns the properties of a container that are not in the columns of the table, one line for each kind:
// for example devices, mounts, classes and rlimits.
func extraLines(s effective.State) []string {
	var lines []string
	add := func(name string, all []string) {
		if len(all) > 0 {
			slices.Sort(all)
			lines = append(lines, name+" "+strings.Join(all, ", "))
		}
	}
	add("devices", slices.Clone(s.Devices))
	add("CDI devices", slices.Clone(s.CDI))
	var mounts, process []string
	for to, from := range s.Mounts {
		if !usualMounts[to] {
			mounts = append(mounts, from+" at "+to)
		}
	}
	add("mounts", mounts)
	for name, value := range s.Process {
		process = append(process, name+" = "+value)
	}
	add("process", process)
	if s.BlockIO != "" {
		lines = append(lines, "block I/O class "+s.BlockIO)
	}
	if s.RDTClass != "" {
		lines = append(lines, "RDT class "+s.RDTClass)
	}
	if s.OOM != 0 {
		lines = append(lines, fmt.Sprintf("OOM score adjustment %d", s.OOM))
	}
	return lines
}

// knownCDIDevices returns a function that reports whether a scenario's node has a CDI device.
func knownCDIDevices(s *scenario.Scenario) func(string) bool {
	names := slices.Clone(s.Node.CDI)
	for i := range s.Steps {
		if claims := s.Steps[i].Claims; claims != nil {
			names = slices.AppendSeq(names, maps.Keys(scenario.ClaimVariables(*claims)))
		}
	}
	return func(name string) bool { return slices.Contains(names, name) }
}

// poolOf returns all CPUs as one shared pool, because the embedded runtime itself has no pools.
func poolOf(r *Runtime) api.NodeCPUs {
	all := r.opts.Machine.Format(r.opts.Machine.Online())
	c := api.NodeCPUs{Online: all, Shared: all}
	for _, n := range r.opts.Machine.Nodes {
		c.Nodes = append(c.Nodes, api.NUMAOf(r.opts.Machine, n))
	}
	return c
}

// printEvent prints one NRI event and the plugins' answer.
func (v *view) printEvent(e Event) {
	ref := string(e.Ref)
	if e.Err != nil {
		v.printf("   %-18s %s %s", e.Kind, ref, v.ink.Paint(term.BoldRed, e.Err.Error()))
		return
	}
	v.printf("   %-18s %s", v.ink.Paint(term.Green, term.Pad(e.Kind, 18)), ref)
	if e.Adjust != nil {
		v.printAnswer("adjust", e.Adjust)
	}
	for _, u := range e.Updates {
		if u.Err != nil {
			v.printf("      %s", v.ink.Paint(term.BoldRed, "update "+string(u.Ref)+": "+u.Err.Error()))
		}
		if u.Resources != nil {
			v.printAnswer("update "+string(u.Ref), u.Resources)
		}
	}
}

// printAnswer prints all fields of a plugin's answer, each with the label before it.
func (v *view) printAnswer(label string, m proto.Message) {
	text, err := protojson.Marshal(m)
	if err != nil {
		v.printf("      %s: %v", label, err)
		return
	}
	var tree any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &tree); err != nil {
		v.printf("      %s: %v", label, err)
		return
	}
	for _, l := range flattenJSON("", tree) {
		v.printf("      %s %s", v.ink.Paint(term.Dim, label), l)
	}
}

// flattenJSON converts a JSON value to lines "path = value". It writes {"value": x} as x, and {"key": k, "value": v} as
// "path k = v", because NRI encodes optional values and key-value pairs in these forms.
func flattenJSON(path string, node any) []string {
	switch n := node.(type) {
	case map[string]any:
		value, wrapped := n["value"]
		key, pair := n["key"].(string)
		switch {
		case wrapped && pair && len(n) == 2:
			return []string{fmt.Sprintf("%s %s = %v", path, key, value)}
		case wrapped && len(n) == 1:
			return flattenJSON(path, value)
		}
		var lines []string
		for _, k := range sortedKeys(n) {
			lines = append(lines, flattenJSON(strings.TrimPrefix(path+"."+k, "."), n[k])...)
		}
		return lines
	case []any:
		var lines []string
		for _, x := range n {
			lines = append(lines, flattenJSON(path, x)...)
		}
		return lines
	}
	return []string{fmt.Sprintf("%s = %v", path, node)}
}
