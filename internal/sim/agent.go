package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/coresched"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/resctrl"
	"github.com/trimtab/trimtab/internal/socket"
	"github.com/trimtab/trimtab/internal/topology"
)

// Agent is an agent as the player of scenarios needs it.
type Agent interface {
	Run(ctx context.Context) error
	Reconfigure(c config.Config) error
	Connected() bool
	Source() status.Source
}

// AgentOptions are what the player gives an agent it starts.
type AgentOptions struct {
	Config  config.Config
	Machine *topology.Machine
	Tree    *cgroup.Tree
	Host    *lifecycle.Host
	Resctrl resctrl.FS       // nil for a machine without
	Cookies coresched.Kernel // likewise
	Log     *slog.Logger
	// Dial connects to the runtime and the kubelet, which have no sockets then; nil for sockets.
	Dial socket.Dialer
}

// AgentFactory makes an agent; nothing of it runs yet.
type AgentFactory func(AgentOptions) (Agent, error)

// ConfigOf reads a scenario's configuration document over the defaults. Where
// the socket, the kernel and the files are is the player's business.
func ConfigOf(document []byte, dir string, version cgroup.Version) (config.Config, error) {
	c := config.Default()
	if len(document) > 0 {
		strict, err := kjson.UnmarshalStrict(document, &c)
		if err := errors.Join(append([]error{err}, strict...)...); err != nil {
			return c, fmt.Errorf("config: %w", err)
		}
	}
	c.NRI.Enabled = true
	c.NRI.Socket = filepath.Join(dir, "nri.sock")
	c.Cgroup.Version = version.String()
	c.Paths.StatusSocket = filepath.Join(dir, "status.sock")
	c.Paths.Key = filepath.Join(dir, "record.key")
	c.Paths.State = filepath.Join(dir, "state")
	c.PodSpec.Kubelet = config.KubeletClient{}
	c.HookServers.Directory = "" // the node's own are none of the described one's
	return c, nil
}

// configOf reads a configuration document for the play's node and seat.
func (p *player) configOf(document []byte) (config.Config, error) {
	c, err := ConfigOf(document, p.dir, p.version)
	if p.memory != nil {
		c.Paths.StatusSocket = ""
	}
	p.seat.Configure(&c, p.dir)
	if p.o.Configure != nil {
		p.o.Configure(&c)
	}
	return c, err
}

// agentLife is the agent under test while it runs.
type agentLife struct {
	agent  Agent
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // of Run, once ended is closed
}

// startAgent makes an agent, lets it run, and waits until it is connected.
func startAgent(ctx context.Context, factory AgentFactory, o AgentOptions, patience time.Duration) (*agentLife, error) {
	a, err := factory(o)
	if err != nil {
		return nil, fmt.Errorf("make the agent: %w", err)
	}
	run, cancel := context.WithCancel(ctx)
	l := &agentLife{agent: a, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		l.err = a.Run(run)
	}()
	if err := l.connected(ctx, patience); err != nil {
		return nil, errors.Join(err, l.stop())
	}
	return l, nil
}

// connected waits until the agent says that it is registered and synchronised.
func (l *agentLife) connected(ctx context.Context, patience time.Duration) error {
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for !l.agent.Connected() {
		select {
		case <-look.C:
		case <-l.ended:
			return fmt.Errorf("the agent ended before it was connected: %w", l.err)
		case <-late.C:
			return fmt.Errorf("the agent was not connected within %s", patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// stop ends the agent and waits for it.
func (l *agentLife) stop() error {
	l.cancel()
	<-l.ended
	if errors.Is(l.err, context.Canceled) {
		return nil
	}
	return l.err
}

// restartAgent ends the agent and starts another that, unless the play says
// otherwise, knows nothing: its state directory is gone, only the key its records are signed with stays.
func (p *player) restartAgent(ctx context.Context) error {
	if err := p.agent.stop(); err != nil {
		return fmt.Errorf("stop the agent: %w", err)
	}
	if !p.o.KeepState {
		if err := os.RemoveAll(p.config.Paths.State); err != nil {
			return err
		}
	}
	return p.startAgent(ctx)
}

func (p *player) startAgent(ctx context.Context) error {
	o := p.options()
	o.Config, o.Log = p.config, p.o.Log
	if p.memory != nil {
		o.Dial = p.memory.Dial
	}
	var err error
	p.agent, err = startAgent(ctx, p.o.Agent, o, p.o.Patience)
	return err
}
