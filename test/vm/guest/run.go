package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/test/vm/wire"
)

// usualTimeout is the time limit of a command that has no time limit of its own.
const usualTimeout = 2 * time.Minute

// run runs a command to its end. But if the command has a log file, run only starts it (see spawn).
func run(ctx context.Context, c wire.Command) wire.Result {
	if c.Log != "" {
		return spawn(c)
	}
	if c.Timeout == 0 {
		c.Timeout = usualTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second // do not wait for a daemon that inherited the pipes
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdin = append(os.Environ(), c.Env...), c.Dir, bytes.NewReader(c.Stdin)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	result := wire.Result{Stdout: stdout.String(), Stderr: stderr.String()}
	if cmd.Process != nil {
		result.PID = cmd.Process.Pid
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		result.Code, result.Err = 124, "killed, because it still ran after "+c.Timeout.String()
	case errors.As(err, &exit):
		result.Code = exit.ExitCode()
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			result.Code, result.Err = 128+int(status.Signal()), status.Signal().String()
		}
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		result.Code, result.Err = 126, err.Error()
	}
	return result
}

// spawn starts a command in the background, with its output in the log file.
func spawn(c wire.Command) wire.Result {
	if err := os.MkdirAll(filepath.Dir(c.Log), 0o755); err != nil {
		return wire.Result{Code: 126, Err: err.Error()}
	}
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return wire.Result{Code: 126, Err: err.Error()}
	}
	defer log.Close()
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env, cmd.Dir, cmd.Stdin = append(os.Environ(), c.Env...), c.Dir, bytes.NewReader(c.Stdin)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return wire.Result{Code: 126, Err: err.Error()}
	}
	go cmd.Wait() // reaps the process
	return wire.Result{PID: cmd.Process.Pid}
}
