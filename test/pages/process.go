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

// process is a command that keeps running. Its output can be read meanwhile.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it ended

	mu  sync.Mutex
	out strings.Builder // guarded by mu
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// stay starts a command and waits until done accepts its output.
func (s *Sandbox) stay(ctx context.Context, script string, done func(out string) bool) (*process, error) {
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
	for deadline := time.Now().Add(longest); ; {
		if done(s.outside(p.printed())) {
			return p, nil
		}
		select {
		case <-p.done:
			if done(s.outside(p.printed())) {
				return p, nil
			}
			return nil, fmt.Errorf("%s\nended, after it printed:\n%s", script, p.printed())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.end()
			return nil, fmt.Errorf("%s\nhas not printed what the page shows, but:\n%s", script, p.printed())
		}
	}
}

// end interrupts the process and waits for its end.
func (p *process) end() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT) // the program may have ended already
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
}
