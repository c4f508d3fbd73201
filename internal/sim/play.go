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

// RunOptions are the options of Run.
type RunOptions struct {
	Out   io.Writer    // receives the output for users; nil for none
	Color bool         // whether the output has colors
	Width int          // columns of the terminal; 0 means 100
	Agent AgentFactory // makes the agent
	// Captured replaces the node that the scenario describes; nil to use the scenario's node.
	Captured *captured.Node
	Log      *slog.Logger
	// Patience is how long each step waits until its wants are met; 0 means 5 s. A want is a state that the scenario
	// requires after a step. After a step with unmet wants, later steps wait at most 5 s.
	Patience time.Duration
	// AtEnd is called with the agent's status after the last step. If it returns an error, Run returns this error.
	// AtEnd may be nil.
	AtEnd func(api.Node) error
	// Configure changes the agent's configuration before the agent starts and at each
	// reconfiguration; nil for no change.
	Configure func(*config.Config)
	// AfterLastStep is called after the last step, while agent and runtime still run. The parameter dir is the
	// directory of their files. AfterLastStep may be nil.
	AfterLastStep func(ctx context.Context, dir string, c config.Config, node api.Node) error
	// Connector connects the agent and the kubelet to the runtime. nil means that the agent runs as an NRI plugin.
	Connector Connector
	// Kind is the runtime whose behaviour the embedded runtime imitates.
	Kind Kind
	// ResourcesSent is called with all resources that plugins send over NRI and clients send over the CRI. It may be
	// nil.
	ResourcesSent func(SentUpdate)
	// Observe is called with every NRI event after the plugins have answered; it may be nil.
	Observe func(Event)
	// AlterStep changes a step before Run plays it, if an attachment cannot do everything in the step. It may be nil.
	AlterStep func(*scenario.Step)
	// WantAtStart returns the fields of a want that must be met at a container's first instruction; nil for all fields.
	WantAtStart func(scenario.Want) scenario.Want
	// KeepState keeps the agent's state files at a restart. Otherwise a restarted agent has only the records that
	// containers carry as annotations.
	KeepState bool
	// ExtraCheck returns a text for each further condition of a step that is not met. Run waits for these conditions as
	// it waits for wants. ExtraCheck may be nil.
	ExtraCheck func(step int, r *Runtime, agent status.Source) []string
	// InMemory connects agent, runtime and kubelet by pipes instead of sockets, so that the scenario can run in a
	// bubble of testing/synctest.
	InMemory bool
	// BeforeStart is called before the runtime and the agent start, with the node's kernel and the directory of the
	// agent's files. AfterStep is called after each step. Both may be nil.
	BeforeStart func(kernel *kernel.Cgroups, dir string) error
	AfterStep   func(step int, r *Runtime, agent status.Source)
}

// UnmetError is the error of a scenario that was played to its end, but has unmet wants.
type UnmetError struct {
	Scenario string
	Wants    []string // a text for each unmet want
}

// Error lists the unmet wants.
func (u *UnmetError) Error() string {
	return fmt.Sprintf("scenario %s: %d expectations are not met:\n  %s", u.Scenario, len(u.Wants), strings.Join(u.Wants, "\n  "))
}

// player plays one scenario.
type player struct {
	opts     RunOptions
	scenario *scenario.Scenario
	nodeParts
	dir           string // directory of sockets and files
	config        config.Config
	pipes         *pipeNetwork // nil with real sockets
	runtime       *Runtime
	connector     Connector
	kubelet       *kubelet
	agent         *runningAgent
	kernelWritten chan struct{} // has an element after a write to a kernel file
	view          *view         // prints the steps for users
	unmet         []string      // a text for each unmet want so far
	wants         int           // the number of wants so far
}

// Run plays a scenario with an agent in this process and prints the results. The error is an *UnmetError if the
// scenario was played to its end and some wants were not met.
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
	p.view.printTitle(s, p.machine)
	for i := range s.Steps {
		if err := p.playStep(ctx, i); err != nil {
			return fmt.Errorf("scenario %s: step %d, %s: %w", s.Name, i+1, s.Steps[i].Name, err)
		}
	}
	if o.AtEnd != nil {
		if err := o.AtEnd(p.agent.agent.Source().Status()); err != nil {
			return err
		}
	}
	p.view.printSummary(len(s.Steps), p.wants, len(p.unmet), time.Since(started))
	if o.AfterLastStep != nil {
		if err := o.AfterLastStep(ctx, p.dir, p.config, p.agent.agent.Source().Status()); err != nil {
			return err
		}
	}
	if len(p.unmet) > 0 {
		return &UnmetError{s.Name, p.unmet}
	}
	return nil
}

// newPlayer makes a player with the simulated node, the runtime and the kubelet. It starts only the kubelet.
func newPlayer(s *scenario.Scenario, o RunOptions) (*player, error) {
	if o.Agent == nil {
		return nil, errors.New("the options have no agent (RunOptions.Agent)")
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
	p := &player{opts: o, scenario: s, connector: o.Connector, kernelWritten: make(chan struct{}, 1), view: newView(o.Out, o.Color, o.Width)}
	parts, err := newNodeParts(s, o.Captured)
	if err != nil {
		return nil, err
	}
	p.nodeParts = parts
	if p.dir, err = os.MkdirTemp("", "trimtab-"); err != nil {
		return nil, err
	}
	if o.InMemory {
		p.pipes = newPipeNetwork()
	}
	if p.config, err = p.configOf(s.Config); err == nil {
		p.runtime, err = NewRuntime(Options{
			Machine: p.machine, Kernel: p.kernel, Version: p.version, Resctrl: p.resctrl, Cookies: p.cookies, Processes: p.processes, Links: p.links, Host: p.host, Driver: Driver(s.Node.Driver),
			Socket: p.config.NRI.Socket, Log: o.Log, Seed: s.Name, KnowsCDI: knownCDIDevices(s), Kind: o.Kind, ResourcesSent: o.ResourcesSent, Observe: o.Observe, pipes: p.pipes,
		})
	}
	if err == nil {
		p.kubelet, err = newKubelet(p.dir, idsOf(p.machine), p.pipes)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	p.configureKubelet(&p.config)
	p.kernel.OnWrite(func(string, string) {
		select {
		case p.kernelWritten <- struct{}{}:
		default: // a signal is already pending
		}
	})
	if o.BeforeStart != nil {
		if err = o.BeforeStart(p.kernel, p.dir); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	return p, nil
}

// nodeParts are the simulated parts of a scenario's node.
type nodeParts struct {
	machine   *topology.Machine
	host      *lifecycle.Host // the devices, memory nodes, huge pages, disks and hook files
	resctrl   *kernel.Resctrl // nil if the node has no resctrl
	cookies   *kernel.Cookies // nil if the kernel has no core scheduling
	processes *kernel.Processes
	cpuFiles  *kernel.CPUFiles // nil if the node has no cpufreq
	links     *kernel.Links    // nil if the scenario does not name the host's network interfaces
	kernel    *kernel.Cgroups  // the cgroup tree
	version   cgroup.Version
}

// newNodeParts makes the simulated parts of a scenario's node. The parameter from is the captured node to simulate; nil
// if the scenario describes the node.
func newNodeParts(s *scenario.Scenario, from *captured.Node) (p nodeParts, err error) {
	if s.Node.Captured != "" && from == nil {
		return p, fmt.Errorf("node.captured: the caller has not read the file %s", s.Node.Captured)
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
	if p.machine, p.kernel, p.version, err = newKernel(n, m); err != nil {
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
	if s.Node.CPUFreq != nil {
		p.cpuFiles = kernel.NewCPUFiles(*s.Node.CPUFreq, idsOf(p.machine))
	}
	if s.Node.Resctrl != nil {
		p.resctrl = kernel.NewResctrl(*s.Node.Resctrl)
	}
	return p, nil
}

// agentOptions returns the options of an agent on the node.
func (p *nodeParts) agentOptions() AgentOptions {
	return AgentOptions{
		Machine: p.machine, Tree: &cgroup.Tree{FS: p.kernel, Version: p.version}, Host: p.host, Resctrl: p.resctrlFiles(), Cookies: p.kernelCookies(), Processes: p.processes,
		HasInterface: p.hasInterface(), CPUFiles: p.filesOfCPUs(), MemoryTiers: p.kernel.TierFiles(),
	}
}

// hasInterface returns a function that reports whether the host has a network interface; nil if the scenario does not
// name the host's interfaces.
func (p *nodeParts) hasInterface() func(string) (has, known bool) {
	if p.links == nil {
		return nil
	}
	return p.links.Has
}

// AgentOptionsFor makes a scenario's node and returns the options of an agent on it, without configuration and log.
func AgentOptionsFor(s *scenario.Scenario) (AgentOptions, error) {
	p, err := newNodeParts(s, nil)
	return p.agentOptions(), err
}

// newKernel makes the simulated kernel of a scenario's node. It also returns the parameter m and the cgroup version.
func newKernel(n scenario.Node, m *topology.Machine) (*topology.Machine, *kernel.Cgroups, cgroup.Version, error) {
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
		err = k.AddOptionalFiles(n.Kernel...)
	}
	if err == nil && n.Tiers != nil {
		err = setTiers(k, *n.Tiers, m)
	}
	return m, k, version, err
}

// hostOf returns the devices, memory nodes, huge pages, disks and hook files of a scenario's node.
func hostOf(n scenario.Node, m *topology.Machine) (*lifecycle.Host, error) {
	h := &lifecycle.Host{Devices: map[string]lifecycle.Device{}, Verbs: n.Verbs, HugePages: n.HugePages, Disks: n.Disks, CDI: n.NodeDevices()}
	for _, node := range m.Nodes {
		h.MemoryNodes = append(h.MemoryNodes, node.ID)
	}
	for _, path := range slices.Sorted(maps.Keys(n.HookFiles)) {
		h.HookFiles = append(h.HookFiles, lifecycle.HookFile{Path: path, Text: n.HookFiles[path]})
	}
	for path, numbers := range n.Devices {
		d := lifecycle.Device{Path: path, Type: "c", FileMode: lifecycle.Some[uint32](0o660)}
		if _, err := fmt.Sscanf(numbers, "%d:%d", &d.Major, &d.Minor); err != nil {
			return nil, fmt.Errorf("node.devices: device %s has the numbers %q: write major:minor", path, numbers)
		}
		h.Devices[path] = d
	}
	return h, nil
}

// idsOf lists the ids of a machine's CPUs.
func idsOf(m *topology.Machine) []int {
	ids := make([]int, len(m.CPUs))
	for i, c := range m.CPUs {
		ids[i] = c.ID
	}
	return ids
}

// close stops the agent, the runtime and the kubelet, and removes their files.
func (p *player) close() error {
	var err error
	if p.agent != nil {
		err = p.agent.stop()
	}
	err = errors.Join(err, p.connector.Close())
	p.runtime.Stop()
	return errors.Join(err, p.kubelet.close(), os.RemoveAll(p.dir))
}

// playStep plays one step, waits for its wants and prints the result. It returns an error only if the scenario cannot
// continue. It stores unmet wants in p.unmet.
func (p *player) playStep(ctx context.Context, i int) error {
	s := &p.scenario.Steps[i]
	if p.opts.AlterStep != nil {
		altered := *s
		p.opts.AlterStep(&altered)
		s = &altered
	}
	before := p.snapshot()
	err := p.performStep(ctx, s)
	var notes []string
	switch {
	case s.Rejected == "" && err != nil:
		return err
	case s.Rejected != "" && err == nil:
		notes = append(notes, fmt.Sprintf("the step was not rejected, wanted an error with %q", s.Rejected))
	case s.Rejected != "" && !strings.Contains(err.Error(), s.Rejected):
		notes = append(notes, fmt.Sprintf("the step was rejected with %q, wanted an error with %q", err, s.Rejected))
	}
	wants := len(s.Want)
	if s.Balloons != nil {
		wants++
	}
	if s.Rejected != "" {
		wants++
	}
	if s.Restart != "" {
		wants++ // a restart must change no container
		notes = append(notes, restartChanges(before, p.snapshot())...)
	}
	p.wants += wants
	notes = append(notes, p.awaitWants(ctx, s, func() []string {
		unmet := append(p.unmetWants(s), p.endedStillReported(s)...)
		if p.opts.ExtraCheck != nil {
			unmet = append(unmet, p.opts.ExtraCheck(i, p.runtime, p.agent.agent.Source())...)
		}
		return unmet
	})...)
	notes = append(notes, p.checkAtStart(s)...)
	if p.opts.AfterStep != nil {
		p.opts.AfterStep(i, p.runtime, p.agent.agent.Source())
	}
	p.view.printStep(stepResult{
		number: i + 1, step: s, containerRows: p.containerRows(before), cpuTiles: p.cpuTiles(), err: err, unmet: notes, wants: wants,
	})
	for _, n := range notes {
		p.unmet = append(p.unmet, fmt.Sprintf("step %d (%s): %s", i+1, s.Name, n))
	}
	return ctx.Err()
}

// performStep performs a step's actions.
func (p *player) performStep(ctx context.Context, s *scenario.Step) error {
	p.pipes.pingPlugins()
	if s.Claims != nil {
		if err := p.writeClaimFiles(*s.Claims); err != nil {
			return err
		}
	}
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
		p.configureKubelet(&c)
		p.config = c
		return p.agent.agent.Reconfigure(c)
	case s.Kubelet != "":
		p.kubelet.setUnreachable(s.Kubelet == "away")
		return nil
	case s.Annotate != nil:
		return p.kubelet.annotatePod(s.Annotate)
	}
	for _, run := range s.Run {
		p.kubelet.addPod(run.Pod, run.Containers, cmp.Or(run.Pod.UID, p.runtime.UID(scenario.PodRef(run.Pod.Namespace, run.Pod.Name))))
	}
	if s.Update != nil && s.Update.PodResources != nil {
		p.kubelet.regrant(s.Update.Container, *s.Update.PodResources)
	}
	err := p.connector.Act(ctx, s)
	if err == nil {
		err = p.runtime.useMemory(s)
	}
	for _, ref := range s.Remove {
		if ref.Container() == "" {
			p.kubelet.removePod(ref)
		}
	}
	return err
}

// writeClaimFiles writes the CDI specifications of claims, as a DRA driver does. It also writes the checkpoint of
// claims, as the kubelet does.
func (p *player) writeClaimFiles(claims []scenario.Claim) error {
	dir := p.config.Paths.CDI[0]
	uid := func(ref scenario.Ref) string { return p.runtime.UID(ref) }
	failed := []error{os.MkdirAll(dir, 0o700)}
	for name, text := range scenario.ClaimSpecs(claims) {
		failed = append(failed, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return errors.Join(append(failed, os.WriteFile(p.config.Paths.DRACheckpoint, scenario.ClaimCheckpoint(claims, uid), 0o600))...)
}

// configureKubelet makes the simulated kubelet the agent's source of pod specs. If the scenario has grants or claims,
// the simulated kubelet also becomes the agent's source of grants.
func (p *player) configureKubelet(c *config.Config) {
	c.PodSpec.Kubelet.URL = p.kubelet.url
	if p.scenario.HasGrants() || p.scenario.HasCPUClaims() {
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
	if err := p.connector.AwaitReconnect(ctx, p.opts.Patience); err != nil {
		return fmt.Errorf("wait for the agent after the restart of the runtime: %w", err)
	}
	return p.agent.awaitConnected(ctx, p.opts.Patience)
}

// Files lists the scenario files of a directory, sorted.
func Files(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	slices.Sort(files)
	return files, err
}
