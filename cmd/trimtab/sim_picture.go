package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// stopAfterFlags are the flags --step and --svg: the step after which a scenario stops, and the file for a drawing of
// the node after this step.
type stopAfterFlags struct {
	svg  string // a file, - for standard output, or "" for no picture
	step int    // 0 means the last step
}

// add adds the flags to a command.
func (e *stopAfterFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.svg, "svg", "", "print no steps, and draw the node after the last step to this SVG `file`; - is standard output")
	cmd.Flags().IntVar(&e.step, "step", 0, "stop after the step with this `number` (default: the last step)")
	// This fails only if the flag does not exist, and the lines above have added it.
	_ = cmd.MarkFlagFilename("svg", "svg")
}

// apply removes the steps after e.step from a scenario. It returns a function that sets the options of the simulation
// so that it draws the node after the last step. If e.svg is "", this function changes nothing.
func (e *stopAfterFlags) apply(s *scenario.Scenario) (func(*sim.RunOptions), error) {
	all := len(s.Steps)
	if e.step < 0 || e.step > all {
		return nil, &usageError{fmt.Errorf("--step %d: the scenario has steps 1 to %d", e.step, all)}
	}
	if e.step > 0 {
		s.Steps = s.Steps[:e.step]
	}
	if e.svg == "" {
		return func(*sim.RunOptions) {}, nil
	}
	caption := status.Caption{Title: "trimtab: " + s.Name}
	if n := len(s.Steps); n > 0 {
		caption.Line = fmt.Sprintf("step %d of %d: %s", n, all, s.Steps[n-1].Name)
	}
	return func(o *sim.RunOptions) {
		out := o.Out
		o.AtEnd = func(n api.Node) error { return drawCaptioned(out, e.svg, n, caption) }
		o.Out = nil // print nothing but the drawing
	}, nil
}

// drawCaptioned draws a node to a file, or to out if file is "-".
func drawCaptioned(out io.Writer, file string, n api.Node, caption status.Caption) error {
	var b bytes.Buffer
	if err := status.CaptionedSVG(&b, n, caption); err != nil {
		return err
	}
	if file == "-" {
		return cli.Write(out, b.Bytes())
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		return &usageError{fmt.Errorf("draw the node: %w", err)}
	}
	return nil
}
