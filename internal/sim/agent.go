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
	"github.com/trimtab/trimtab/internal/cpuclass"
	"github.com/trimtab/trimtab/internal/demotion"
	"github.com/trimtab/trimtab/internal/jsonwords"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/process"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/resctrl"
	"github.com/trimtab/trimtab/internal/socket"
	"github.com/trimtab/trimtab/internal/topology"
)

// Agent has the methods of an agent that the player of scenarios uses.
type Agent interface {
	// Run runs the agent until ctx ends.
	Run(ctx context.Context) error
	// Reconfigure puts another configuration in force.
	Reconfigure(c config.Config) error
	// Connected reports whether the runtime has registered and synchronised the agent.
	Connected() bool
	// Source gives access to the agent's status and explanations.
	Source() status.Source
}

// AgentOptions are the options of an agent that the player starts.
type AgentOptions struct {
	Config    config.Config
	Machine   *topology.Machine
	Tree      *cgroup.Tree
	Host      *lifecycle.Host
	Resctrl   resctrl.FS       // nil if the machine has no resctrl
	Cookies   coresched.Kernel // core scheduling; nil if the kernel has no core scheduling
	Processes process.Kernel   // attributes of processes
	CPUFiles  cpuclass.FS      // files of cpufreq and cpuidle; nil if the machine has no cpufreq
	// MemoryTiers are the files in which the kernel lists memory tiers, swap devices and free memory.
	MemoryTiers demotion.Files
	// HasInterface reports whether the host has a network interface; nil if the interfaces are unknown.
	HasInterface func(name string) (has, known bool)
	Log          *slog.Logger
	// Dial connects to the runtime and the kubelet if they are reachable only in this process; nil means real sockets.
	Dial socket.Dialer
}

// AgentFactory makes an agent. The player runs the agent.
type AgentFactory func(AgentOptions) (Agent, error)

// ConfigOf parses a scenario's configuration document. Keys that the document lacks have their defaults. ConfigOf
// always sets the cgroup version, and sets the paths of sockets and files to paths in dir.
func ConfigOf(document []byte, dir string, version cgroup.Version) (config.Config, error) {
	c := config.Default()
	if len(document) > 0 {
		strict, err := kjson.UnmarshalStrict(config.RenameJSON(document), &c)
		if err := errors.Join(append([]error{err}, strict...)...); err != nil {
			return c, fmt.Errorf("config: %w", jsonwords.Error(err))
		}
	}
	if err := c.ReadPolicyFile(); err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	c.NRI.Enabled = true
	c.NRI.Socket = filepath.Join(dir, "nri.sock")
	c.Cgroup.Version = version.String()
	c.Paths.StatusSocket = filepath.Join(dir, "status.sock")
	c.Paths.Key = filepath.Join(dir, "record.key")
	c.Paths.State = filepath.Join(dir, "state")
	c.Paths.CDI = []string{filepath.Join(dir, "cdi")}
	c.Paths.DRACheckpoint = filepath.Join(dir, "dra_manager_state")
	c.PodSpec.Kubelet = config.KubeletClient{}
	c.HookServers.Directory = "" // the simulated node must not use hook servers of the host
	return c, nil
}

// configOf parses a configuration document and sets the keys that the simulated node and the connector need.
func (p *player) configOf(document []byte) (config.Config, error) {
	c, err := ConfigOf(document, p.dir, p.version)
	if p.pipes != nil {
		c.Paths.StatusSocket = ""
	}
	p.connector.Configure(&c, p.dir)
	if p.opts.Configure != nil {
		p.opts.Configure(&c)
	}
	return c, err
}

// runningAgent is an agent that runs in its own goroutine.
type runningAgent struct {
	agent  Agent
	cancel context.CancelFunc // ends the agent
	ended  chan struct{}      // closed when the agent's Run has returned
	err    error              // the result of Run; valid after ended is closed
}

// startAgent makes and runs an agent. It waits until the agent is connected, but not longer than patience.
func startAgent(ctx context.Context, factory AgentFactory, o AgentOptions, patience time.Duration) (*runningAgent, error) {
	a, err := factory(o)
	if err != nil {
		return nil, fmt.Errorf("make the agent: %w", err)
	}
	run, cancel := context.WithCancel(ctx)
	l := &runningAgent{agent: a, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		l.err = a.Run(run)
	}()
	if err := l.awaitConnected(ctx, patience); err != nil {
		return nil, errors.Join(err, l.stop())
	}
	return l, nil
}

// awaitConnected waits until the agent is connected. It returns an error after patience, or if the agent ends.
func (l *runningAgent) awaitConnected(ctx context.Context, patience time.Duration) error {
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for !l.agent.Connected() {
		select {
		case <-poll.C:
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
func (l *runningAgent) stop() error {
	l.cancel()
	<-l.ended
	if errors.Is(l.err, context.Canceled) {
		return nil
	}
	return l.err
}

// restartAgent stops the agent and starts a new agent. In between, it deletes the agent's state directory, unless
// RunOptions.KeepState is set. It never deletes the key that signs records.
func (p *player) restartAgent(ctx context.Context) error {
	if err := p.agent.stop(); err != nil {
		return fmt.Errorf("stop the agent: %w", err)
	}
	if !p.opts.KeepState {
		if err := os.RemoveAll(p.config.Paths.State); err != nil {
			return err
		}
	}
	return p.startAgent(ctx)
}

// startAgent starts an agent with the present configuration.
func (p *player) startAgent(ctx context.Context) error {
	o := p.agentOptions()
	o.Config, o.Log = p.config, p.opts.Log
	if p.pipes != nil {
		o.Dial = p.pipes.Dial
	}
	var err error
	p.agent, err = startAgent(ctx, p.opts.Agent, o, p.opts.Patience)
	return err
}
