// Command trimtab-oci runs in front of an OCI runtime such as runc. When a container is created, it applies the agent's
// decision to the bundle's config.json. The decision has the values for which the CRI has no field. Then trimtab-oci
// executes the real runtime. It needs no running agent, holds no state and decides nothing. See docs/oci-wrapper.md.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/internal/ociedit"
)

func main() {
	w := wrapper{args: os.Args[1:], err: os.Stderr, exec: syscall.Exec}
	if err := w.run(os.Getenv(settingsVariable)); err != nil {
		w.reportError("error", err)
		os.Exit(1)
	}
}

// wrapper is one run of trimtab-oci.
type wrapper struct {
	args []string                                    // the arguments of the command line, without the program name
	err  io.Writer                                   // receives the error messages
	exec func(path string, args, env []string) error // replaces the process by the program at path; returns only after an error
}

// run edits the bundle if the call creates a container, and then executes the real runtime.
func (w *wrapper) run(settingsFile string) error {
	c := parseCommandLine(w.args)
	s, err := readSettings(settingsFile)
	if err != nil && c.createsContainer() {
		return err // possibly the unreadable settings have onError: fail, so create no container
	}
	runtime, err := findRuntime(s.Runtime)
	if err != nil {
		return err
	}
	if c.createsContainer() {
		if err := applyDecision(s.Decisions, c); err != nil {
			if s.OnError == onErrorFail {
				return err
			}
			w.reportError("warning", fmt.Errorf("%w; the container starts without the values that Trimtab decided", err))
		}
	}
	if err := w.exec(runtime, append([]string{runtime}, w.args...), os.Environ()); err != nil {
		return fmt.Errorf("start the OCI runtime %s: %w", runtime, err)
	}
	return nil
}

// applyDecision applies the agent's decision about a container to the bundle, if there is a decision.
func applyDecision(decisions string, c commandLine) error {
	d, err := ociedit.ReadDecision(decisions, c.id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		err = ociedit.EditBundle(c.bundle, &d)
	}
	_ = ociedit.WriteResult(decisions, c.id, err) // if WriteResult fails, the agent reports that the decision has no result
	return err
}

// findRuntime returns the path of the real runtime, which must not be this program.
func findRuntime(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("find the OCI runtime: %w", err)
	}
	theirs, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("find the OCI runtime: %w", err)
	}
	if ours, err := os.Stat("/proc/self/exe"); err == nil && os.SameFile(ours, theirs) {
		return "", fmt.Errorf("the OCI runtime %s is trimtab-oci itself: set runtime in the settings of trimtab-oci to the real OCI runtime", path)
	}
	return filepath.Abs(path)
}

// reportError prints an error. It also appends the error to the log file of the option --log, from which the caller
// (containerd or CRI-O) reads the errors of an OCI runtime.
func (w *wrapper) reportError(level string, err error) {
	fmt.Fprintln(w.err, "trimtab-oci:", err)
	c := parseCommandLine(w.args)
	if c.logFile == "" {
		return
	}
	f, openErr := os.OpenFile(c.logFile, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if openErr != nil {
		return
	}
	defer f.Close()
	now := time.Now().UTC().Format(time.RFC3339)
	if c.logFormat == "json" {
		fmt.Fprintf(f, "{\"level\":%q,\"msg\":%s,\"time\":%q}\n", level, jsonQuoted("trimtab-oci: "+err.Error()), now)
		return
	}
	fmt.Fprintf(f, "time=%q level=%s msg=%q\n", now, level, "trimtab-oci: "+err.Error())
}
