package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/captured"
)

// RunOptions say through which connector a scenario runs, what it shows, and what the caller observes or changes.
type RunOptions struct {
	Out   io.Writer // output for people; nil for none
	Color bool
	Width int // columns of the terminal; 0 means 100
	Agent AgentFactory
	// Captured is the node to play on instead of the scenario's; nil for that one.
	Captured *captured.Node
	Log      *slog.Logger
	// Patience is how long to wait for wants to hold; 0 means 5 s.
	Patience time.Duration
	// AtEnd is called with the agent's status of the node after the last step. The run returns its error.
	AtEnd func(api.Node) error
	// Configure changes the agent's configuration before it starts and at each
	// reconfiguration; nil for no change.
	Configure func(*config.Config)
	// Stay is called after the last step, while agent and runtime run; they end when
	// it returns. dir is the directory of their files. nil ends them at once.
	Stay func(ctx context.Context, dir string, c config.Config, node api.Node) error
	// Connector connects agent and kubelet to the runtime; nil for an NRI plugin.
	Connector Connector
	// Kind is the runtime that the embedded one imitates. Sent is called with all resources that are sent to it.
	Kind Kind
	Sent func(Sent)
	// Observe is called with every NRI event after its answer; it may be nil.
	Observe func(Event)
	// Alter changes a step before it is played, if an attachment cannot set what the step wants; nil for no change.
	Alter func(*scenario.Step)
	// First returns the part of a want that must hold at a container's first instruction; nil for all of it.
	First func(scenario.Want) scenario.Want
	// KeepState keeps the agent's files over a restart. Otherwise a restarted agent has only the containers' records.
	KeepState bool
	// Also checks further conditions after a step and returns the unmet ones, which are waited for like wants. It may be
	// nil.
	Also func(step int, r *Runtime, agent status.Source) []string
	// Memory connects agent, runtime and kubelet by pipes (AgentOptions.Dial) and opens no socket, so that the play can
	// run in a bubble of testing/synctest.
	Memory bool
	// Ready is called with the node's kernel and the directory of the agent's files before anything starts. After is
	// called after each step. Both may be nil.
	Ready func(kernel *kernel.Cgroups, dir string) error
	After func(step int, r *Runtime, agent status.Source)
}

// Unmet is the error of a scenario that was played to its end with unmet wants.
type Unmet struct {
	Scenario string
	Wants    []string
}

// Error lists the unmet expectations.
func (u *Unmet) Error() string {
	return fmt.Sprintf("scenario %s: %d not met:\n  %s", u.Scenario, len(u.Wants), strings.Join(u.Wants, "\n  "))
}

// player plays one scenario.
type player struct {
	o RunOptions
	s *scenario.Scenario
	parts
	dir       string // directory of sockets and files
	config    config.Config
	memory    *memory // nil if sockets are used
	runtime   *Runtime
	connector Connector
	kubelet   *kubelet
	agent     *agentLife
	changed   chan struct{} // signals writes to the kernel
	view      *view
	unmet     []string
	wants     int
}

// Run plays a scenario with an agent in this process and shows the results. The error is an *Unmet if the scenario was
// played and some wants did not hold.
func Run(ctx context.Context, s *scenario.Scenario, o RunOptions) (err error) {
	started := time.Now()
	p, err := newPlayer(s, o)
	if err != nil {
		return fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.runtime.Start(ctx); err != nil {
		return fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	if err := p.connector.Open(ctx, p.runtime); err != nil {
		return fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	if err := p.startAgent(ctx); err != nil {
		return fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	p.view.title(s, p.machine)
	for i := range s.Steps {
		if err := p.step(ctx, i); err != nil {
			return fmt.Errorf("scenario %s: step %d, %s: %w", s.Name, i+1, s.Steps[i].Name, err)
		}
	}
	if o.AtEnd != nil {
		if err := o.AtEnd(p.agent.agent.Source().Status()); err != nil {
			return err
		}
	}
	p.view.end(len(s.Steps), p.wants, len(p.unmet), time.Since(started))
	if o.Stay != nil {
		if err := o.Stay(ctx, p.dir, p.config, p.agent.agent.Source().Status()); err != nil {
			return err
		}
	}
	if len(p.unmet) > 0 {
		return &Unmet{s.Name, p.unmet}
	}
	return nil
}

func newPlayer(s *scenario.Scenario, o RunOptions) (*player, error) {
	if o.Agent == nil {
		return nil, errors.New("no agent to play it with")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Patience == 0 {
		o.Patience = 5 * time.Second
	}
	if o.Connector == nil {
		o.Connector = &nriConnector{}
	}
	p := &player{o: o, s: s, connector: o.Connector, changed: make(chan struct{}, 1), view: newView(o.Out, o.Color, o.Width)}
	parts, err := partsOf(s, o.Captured)
	if err != nil {
		return nil, err
	}
	p.parts = parts
	if p.dir, err = os.MkdirTemp("", "trimtab-"); err != nil {
		return nil, err
	}
	if o.Memory {
		p.memory = newMemory()
	}
	if p.config, err = p.configOf(s.Config); err == nil {
		p.runtime, err = NewRuntime(Options{
			Machine: p.machine, Kernel: p.kernel, Version: p.version, Resctrl: p.resctrl, Cookies: p.cookies, Processes: p.processes, Links: p.links, Host: p.host, Driver: Driver(s.Node.Driver),
			Socket: p.config.NRI.Socket, Log: o.Log, Seed: s.Name, KnowsCDI: knows(s.Node.CDI), Kind: o.Kind, Sent: o.Sent, Observe: o.Observe, memory: p.memory,
		})
	}
	if err == nil {
		p.kubelet, err = newKubelet(p.dir, idsOf(p.machine), p.memory)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	p.askKubelet(&p.config)
	p.kernel.OnWrite(func(string, string) {
		select {
		case p.changed <- struct{}{}:
		default: // a notification is already pending
		}
	})
	if o.Ready != nil {
		if err = o.Ready(p.kernel, p.dir); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	return p, nil
}

// parts are the parts of a scenario's node.
type parts struct {
	machine   *topology.Machine
	host      *lifecycle.Host
	resctrl   *kernel.Resctrl
	cookies   *kernel.Cookies
	processes *kernel.Processes
	links     *kernel.Links // nil if the scenario does not name the host's network interfaces
	kernel    *kernel.Cgroups
	version   cgroup.Version
}

func partsOf(s *scenario.Scenario, from *captured.Node) (p parts, err error) {
	if s.Node.Captured != "" && from == nil {
		return p, fmt.Errorf("node.captured: nobody has read %s", s.Node.Captured)
	}
	m, err := Machine(s.Node, from)
	if err != nil {
		return p, err
	}
	n := s.Node
	if from != nil {
		n.HugePages, n.Disks = from.HugePages, from.Disks
		if from.CgroupV1 {
			n.Cgroup = "v1"
		}
	}
	if p.machine, p.kernel, p.version, err = node(n, m); err != nil {
		return p, err
	}
	if p.host, err = hostOf(n, m); err != nil {
		return p, err
	}
	p.processes = kernel.NewProcesses()
	if s.Node.Interfaces != nil {
		p.links = kernel.NewLinks(s.Node.Interfaces)
	}
	if s.Node.CoreSched {
		p.cookies = kernel.NewCookies()
	}
	if s.Node.Resctrl != nil {
		p.resctrl = kernel.NewResctrl(*s.Node.Resctrl)
	}
	return p, nil
}

// options returns the options of an agent on the node.
func (p *parts) options() AgentOptions {
	return AgentOptions{
		Machine: p.machine, Tree: &cgroup.Tree{FS: p.kernel, Version: p.version}, Host: p.host, Resctrl: p.files(), Cookies: p.kernelCookies(), Processes: p.processes,
		HasInterface: p.hasInterface(),
	}
}

// hasInterface returns what reports where the host's network interfaces are; nil if that is unknown.
func (p *parts) hasInterface() func(string) (has, known bool) {
	if p.links == nil {
		return nil
	}
	return p.links.Has
}

// NodeOf makes a scenario's node again and returns the options of an agent on it, without configuration and log.
func NodeOf(s *scenario.Scenario) (AgentOptions, error) {
	p, err := partsOf(s, nil)
	return p.options(), err
}

// node makes a scenario's machine and its kernel.
func node(n scenario.Node, m *topology.Machine) (*topology.Machine, *kernel.Cgroups, cgroup.Version, error) {
	version := cgroup.V2
	if n.Cgroup == "v1" {
		version = cgroup.V1
	}
	var nodes []int
	for _, n := range m.Nodes {
		nodes = append(nodes, n.ID)
	}
	k, err := kernel.NewCgroups(version, m.Format(m.Online()), topology.FormatList(nodes))
	if err == nil {
		for _, number := range n.Disks {
			k.AddDevice(number)
		}
		err = k.Offer(n.Kernel...)
	}
	return m, k, version, err
}

// hostOf makes a scenario's devices.
func hostOf(n scenario.Node, m *topology.Machine) (*lifecycle.Host, error) {
	h := &lifecycle.Host{Devices: map[string]lifecycle.Device{}, Verbs: n.Verbs, HugePages: n.HugePages, Disks: n.Disks}
	for _, node := range m.Nodes {
		h.MemoryNodes = append(h.MemoryNodes, node.ID)
	}
	for _, path := range slices.Sorted(maps.Keys(n.HookFiles)) {
		h.HookFiles = append(h.HookFiles, lifecycle.HookFile{Path: path, Text: n.HookFiles[path]})
	}
	for path, numbers := range n.Devices {
		d := lifecycle.Device{Path: path, Type: "c", FileMode: lifecycle.Some[uint32](0o660)}
		if _, err := fmt.Sscanf(numbers, "%d:%d", &d.Major, &d.Minor); err != nil {
			return nil, fmt.Errorf("node: device %s: %q is not major:minor", path, numbers)
		}
		h.Devices[path] = d
	}
	return h, nil
}

// idsOf lists the CPUs of a machine.
func idsOf(m *topology.Machine) []int {
	ids := make([]int, len(m.CPUs))
	for i, c := range m.CPUs {
		ids[i] = c.ID
	}
	return ids
}

func (p *player) close() error {
	var err error
	if p.agent != nil {
		err = p.agent.stop()
	}
	err = errors.Join(err, p.connector.Close())
	p.runtime.Stop()
	return errors.Join(err, p.kubelet.close(), os.RemoveAll(p.dir))
}

// step plays one step, waits for its wants and shows the result. An error means that the scenario cannot continue;
// unmet wants are only noted.
func (p *player) step(ctx context.Context, i int) error {
	s := &p.s.Steps[i]
	if p.o.Alter != nil {
		altered := *s
		p.o.Alter(&altered)
		s = &altered
	}
	before := p.snapshot()
	err := p.act(ctx, s)
	var notes []string
	switch {
	case s.Rejected == "" && err != nil:
		return err
	case s.Rejected != "" && err == nil:
		notes = append(notes, fmt.Sprintf("was not rejected; wanted an error with %q", s.Rejected))
	case s.Rejected != "" && !strings.Contains(err.Error(), s.Rejected):
		notes = append(notes, fmt.Sprintf("was rejected with %q, wanted %q", err, s.Rejected))
	}
	wants := len(s.Want)
	if s.Rejected != "" {
		wants++
	}
	if s.Restart != "" {
		wants++ // this step checks that nothing moves
		notes = append(notes, moved(before, p.snapshot())...)
	}
	p.wants += wants
	notes = append(notes, p.await(ctx, func() []string {
		unmet := append(p.check(s), p.ended(s)...)
		if p.o.Also != nil {
			unmet = append(unmet, p.o.Also(i, p.runtime, p.agent.agent.Source())...)
		}
		return unmet
	})...)
	notes = append(notes, p.checkFirst(s)...)
	if p.o.After != nil {
		p.o.After(i, p.runtime, p.agent.agent.Source())
	}
	p.view.step(shown{
		number: i + 1, step: s, rows: p.rows(before), picture: p.picture(), err: err, unmet: notes, wants: wants,
	})
	for _, n := range notes {
		p.unmet = append(p.unmet, fmt.Sprintf("step %d (%s): %s", i+1, s.Name, n))
	}
	return ctx.Err()
}

// act performs a step's actions.
func (p *player) act(ctx context.Context, s *scenario.Step) error {
	p.memory.ping()
	switch {
	case s.Restart == "agent":
		return p.restartAgent(ctx)
	case s.Restart == "runtime":
		return p.restartRuntime(ctx)
	case len(s.Reconfigure) > 0:
		c, err := p.configOf(s.Reconfigure)
		if err != nil {
			return err
		}
		p.askKubelet(&c)
		p.config = c
		return p.agent.agent.Reconfigure(c)
	case s.Kubelet != "":
		p.kubelet.setAway(s.Kubelet == "away")
		return nil
	case s.Annotate != nil:
		return p.kubelet.annotate(s.Annotate)
	}
	for _, run := range s.Run {
		p.kubelet.put(run.Pod, cmp.Or(run.Pod.UID, p.runtime.UID(scenario.PodRef(run.Pod.Namespace, run.Pod.Name))))
	}
	if s.Update != nil && s.Update.PodResources != nil {
		p.kubelet.regrant(s.Update.Container, *s.Update.PodResources)
	}
	err := p.connector.Act(ctx, s)
	for _, ref := range s.Remove {
		if ref.Container() == "" {
			p.kubelet.drop(ref)
		}
	}
	return err
}

// askKubelet configures the play's kubelet as a source of pod specs and, if the scenario has grants, of these.
func (p *player) askKubelet(c *config.Config) {
	c.PodSpec.Kubelet.URL = p.kubelet.url
	if p.s.HasGrants() {
		c.PodSpec.Kubelet.PodResourcesSocket = p.kubelet.socket
	}
}

// restartRuntime restarts the runtime and waits until the agent is connected again.
func (p *player) restartRuntime(ctx context.Context) error {
	if err := p.connector.Close(); err != nil {
		return err
	}
	if err := p.runtime.Restart(ctx); err != nil {
		return err
	}
	if err := p.connector.Open(ctx, p.runtime); err != nil {
		return err
	}
	if err := p.connector.Back(ctx, p.o.Patience); err != nil {
		return fmt.Errorf("after the restart: %w", err)
	}
	return p.agent.connected(ctx, p.o.Patience)
}

// Files lists the scenario files of a directory, sorted.
func Files(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	slices.Sort(files)
	return files, err
}
