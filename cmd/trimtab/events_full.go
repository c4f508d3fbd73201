package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/recording"
	"github.com/trimtab/trimtab/internal/report/status"
)

// fullEventFlags are the flags of the command events that show or record each event with its whole message from the
// runtime and the whole decision of the agent.
type fullEventFlags struct {
	// full prints the whole message and decision of each event. withoutEnv leaves out the values of environment
	// variables.
	full, withoutEnv bool
	record           string // the file to which the events are written
}

// addFullEventFlags adds the flags to a command, and returns their values.
func addFullEventFlags(cmd *cobra.Command) *fullEventFlags {
	f := &fullEventFlags{}
	cmd.Flags().BoolVar(&f.full, "full", false, "show the whole message and decision of each event from now on, as YAML documents")
	cmd.Flags().StringVar(&f.record, "record", "", "write each event from now on to a `file` that 'trimtab replay' reads")
	cmd.Flags().BoolVar(&f.withoutEnv, "without-env", false, "with --full or --record, leave out the values of environment variables")
	return f
}

// wantsFull reports whether the user set --full or --record, which request the whole message and decision of each
// event. It returns an error if the user combines flags that exclude each other.
func (f *fullEventFlags) wantsFull(cmd *cobra.Command) (bool, error) {
	is := f.full || f.record != ""
	for _, other := range []string{"since", "follow", "output"} {
		if is && cmd.Flags().Changed(other) {
			return true, &usageError{fmt.Errorf("--%s cannot be used with --full or --record, which begin now and continue until interrupted", other)}
		}
	}
	if f.withoutEnv && !is {
		return false, &usageError{errors.New("--without-env can only be used with --full or --record")}
	}
	return is, nil
}

// run shows and records events until ctx ends.
func (f *fullEventFlags) run(ctx context.Context, c *status.Client, w, log io.Writer) (err error) {
	var keep *bufio.Writer
	if f.record != "" {
		file, err := os.OpenFile(f.record, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return &usageError{fmt.Errorf("--record: %s exists already: name another file, or remove it", f.record)}
		}
		if err != nil {
			return &usageError{fmt.Errorf("--record: %w", err)}
		}
		keep = bufio.NewWriter(file)
		defer func() { err = errors.Join(err, keep.Flush(), file.Close()) }()
	}
	var head recording.Header
	seen, lost := uint64(0), uint64(0)
	err = c.Record(ctx, f.withoutEnv, func(line []byte) error {
		if keep != nil {
			_, _ = keep.Write(line)
			_ = keep.WriteByte('\n')
			if err := keep.Flush(); err != nil { // flush also returns the errors of earlier writes
				return fmt.Errorf("write %s: %w", f.record, err)
			}
		}
		if head.Kind == "" {
			if err := json.Unmarshal(line, &head); err != nil {
				return fmt.Errorf("read the agent's answer: %w", err)
			}
			fmt.Fprintf(log, "recording; %d pods and %d containers are running\n", len(head.State.Pods), len(head.State.Containers))
			return nil
		}
		var count struct{ Lost uint64 }
		_ = json.Unmarshal(line, &count)
		seen, lost = seen+1, lost+count.Lost
		if !f.full {
			return nil
		}
		text, err := yaml.JSONToYAML(line)
		if err != nil {
			return fmt.Errorf("read the agent's answer: %w", err)
		}
		_, err = w.Write(append([]byte("---\n"), text...))
		return err
	})
	fmt.Fprintf(log, "%d events", seen)
	if lost > 0 {
		fmt.Fprintf(log, "; %d were lost because they were not read in time", lost)
	}
	fmt.Fprintln(log)
	return err
}
