package pages

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a command that runs while the sandbox runs other commands. Its output can be read meanwhile.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the command has ended

	mu  sync.Mutex      // guards out
	out strings.Builder // the output so far
}

// Write adds to the output. The command writes its standard output and standard error here.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// printed returns the output so far.
func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// startProcess starts a command that keeps running. It returns when the function done accepts the output. It returns an error
// if the command ends before that, or runs for longer than a block may take.
func (s *Sandbox) startProcess(ctx context.Context, script string, done func(out string) bool) (*process, error) {
	p := &process{done: make(chan struct{})}
	p.cmd = s.command(context.WithoutCancel(ctx), script)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // the exit code does not matter: only the output of the program is compared
		close(p.done)
	}()
	for deadline := time.Now().Add(maxBlockTime); ; {
		if done(s.toNodePaths(p.printed())) {
			return p, nil
		}
		select {
		case <-p.done:
			if done(s.toNodePaths(p.printed())) {
				return p, nil
			}
			return nil, fmt.Errorf("%s\nended before it printed the expected output. It printed:\n%s", script, p.printed())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.end()
			return nil, fmt.Errorf("%s\ndid not print the expected output within %v. It printed:\n%s", script, maxBlockTime, p.printed())
		}
	}
}

// end sends SIGINT to the process and waits until it has ended. After five seconds it kills the process.
func (p *process) end() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT) // the program may have ended already
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
}
