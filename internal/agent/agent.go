package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/coresched"
	"github.com/trimtab/trimtab/internal/cpuclass"
	"github.com/trimtab/trimtab/internal/demotion"
	"github.com/trimtab/trimtab/internal/extend/hookserver"
	"github.com/trimtab/trimtab/internal/extend/nrihost"
	"github.com/trimtab/trimtab/internal/extend/qrm"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/kube/layers"
	"github.com/trimtab/trimtab/internal/kube/namespaces"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodelock"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/process"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/cpumap"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/report/metrics"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/resctrl"
	"github.com/trimtab/trimtab/internal/socket"
	"github.com/trimtab/trimtab/internal/statefile"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/sysfs"
)

// Options are the settings of an agent. Some fields, such as Machine, Tree and Host, replace parts of the node in tests
// and simulations. The agent reads Machine, Tree and Host from the real node if they are nil.
type Options struct {
	Config     config.Config
	ConfigFile string // watched for changes; "" for none
	// Reload makes the agent read ConfigFile at once when the channel has a signal, such as SIGHUP; nil for none.
	Reload <-chan os.Signal
	// Override changes each configuration that is read from the file. It sets the values of flags, which have
	// priority over the file. It may be nil.
	Override func(*config.Config)
	// LogLevel receives log.level of the configuration; nil if the caller sets the level itself.
	LogLevel *slog.LevelVar
	// SetLogFormat is called with log.format of the configuration; nil if the caller sets the format itself.
	SetLogFormat func(string)
	Version      string // version of the agent
	Commit       string // Git commit from which the agent was built
	Log          *slog.Logger
	Machine      *topology.Machine
	Tree         *cgroup.Tree
	Host         *lifecycle.Host
	Resctrl      resctrl.FS
	// CPUFiles are the cpufreq and cpuidle files. nil means the files in paths.cpu. If Tree is set, nil means that there
	// are no files.
	CPUFiles cpuclass.FS
	// MemoryTiers are the files in which the kernel lists memory tiers, swap devices and free memory. nil means the files
	// of this node. If Tree is set, nil means that the agent demotes no memory.
	MemoryTiers demotion.Files
	// Cookies makes the kernel calls for core scheduling. Processes makes the kernel calls for the attributes of
	// processes. nil means the calls of the real kernel, or none if Tree is set.
	Cookies   coresched.Kernel
	Processes process.Kernel
	// HasInterface reports whether the host has a network interface. If HasInterface is nil and Host is nil, the agent
	// reads the interfaces from the files in Config.Paths.Sys. If HasInterface is nil and Host is set, the agent knows
	// no interfaces.
	HasInterface func(name string) (has, known bool)
	// Listeners are open sockets that the CRI proxy serves in place of the sockets that it would open itself.
	Listeners []net.Listener
	// Watch returns a watcher of changes in Tree; nil means inotify on the node's tree.
	Watch func() (cgroup.Watcher, error)
	// Proc is the directory from which the agent reads processes, GPUs, and the usage of CPUs and memory; "" for
	// /proc.
	Proc string
	// PollInterval is the interval at which the attachment "bypass" reads each container's resources from the runtime.
	// 0 means the default of that attachment.
	PollInterval time.Duration
	// SweepInterval is the interval between two searches for pods that ended without an event and for containers without a
	// cgroup; 0 for the conductor's default.
	SweepInterval time.Duration
	// CgroupDir is the directory that the agent locks to exclude a second agent; "" for none. It is used only if Tree is
	// set. Otherwise the agent locks the kubelet's cgroup root.
	CgroupDir string
	// StateFS returns the file system of a directory of state files; nil means the file system of the operating system.
	StateFS func(dir string) statefile.FS
	// Dial connects to the runtime; nil means package net.
	Dial socket.Dialer
	// DialKubelet connects to the kubelet at host:port or at the path of a socket; nil means package net.
	DialKubelet socket.Dialer
	// FreeMemory gives the process's unused memory back to the operating system. The agent calls it after it has read
	// all containers of a runtime. nil means debug.FreeOSMemory. A process that runs many agents sets a function that
	// does nothing.
	FreeMemory func()
	// MaxStartDelay is the maximum random delay after the start before the agent lists objects at the API server; 0
	// means 20 s.
	MaxStartDelay time.Duration
	// Polls makes the NRI attachment poll for the runtime's socket. If Polls is false, the attachment uses inotify.
	Polls bool
	// WrapListener wraps the listener of the status socket. It may be nil.
	WrapListener func(net.Listener) net.Listener
}

// Agent is the Trimtab agent of a node.
type Agent struct {
	opt             Options
	log             *slog.Logger
	node            node
	settings        *settings
	ownerLetters    cpumap.Letters       // the letters that stand for pods in drawings of the CPUs
	conductor       *conductor.Conductor // handles the runtime's events one after another, and has the agent's state
	keeper          *keeper.Keeper       // writes cgroup files and other kernel values, and stores the original values
	files           stateFiles
	specs           *podspec.Chain      // the sources of pod specs
	grants          *podspec.Grants     // the devices, CPUs and memory nodes that the kubelet assigned
	hookServers     *hookserver.Servers // nil if hookServers.directory is empty
	resourcePlugins *qrm.Manager        // nil if no resource plugins can register
	ahead           *conductor.Ahead    // decides about pods before the runtime reports them; nil if ahead.enabled is not set
	nriHost         *nrihost.Host       // nil if the agent serves no NRI plugins
	attachments     attachments
	metrics         *metrics.Metrics
	startTime       time.Time
	otherAgent      otherAgent
	cluster         cluster
	layers          *layers.Watch // reads configuration layers from the API server; nil without cluster.config.enabled
	layeredConfig   *layeredConfig
	// fileConfig is the configuration that the configuration file and the flags had when the agent started.
	fileConfig config.Config
	// close closes the agent's files and releases the lock of the state directory.
	close func() error
}

// New makes an agent. The agent attaches to nothing and writes nothing to the kernel before Run.
func New(o Options) (*Agent, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.FreeMemory == nil {
		o.FreeMemory = debug.FreeOSMemory
	}
	a, err := newAgent(o, true)
	if err != nil && a != nil {
		o.Log.Error("the agent cannot start with the API server's last configuration; it starts with the configuration file alone", logkey.Err, err)
		a, err = newAgent(o, false)
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// newAgent makes an agent. If restore is true, newAgent merges the copy of the API server's last configuration over the
// configuration file. If the agent with this merged configuration cannot be built, newAgent returns the agent together
// with the error, so that the caller tries again without the copy. For other errors it returns no agent.
func newAgent(o Options, restore bool) (*Agent, error) {
	applyObserveMode(&o)
	paths := o.Config.Paths
	a := &Agent{
		opt: o, log: o.Log, startTime: time.Now(), close: func() error { return nil },
		files:      stateFiles{log: o.Log, paths: paths, makeFS: o.StateFS},
		otherAgent: otherAgent{log: o.Log, statusSocketPath: paths.StatusSocket, wrapListener: o.WrapListener}, layeredConfig: newLayeredConfig(o), fileConfig: o.Config,
	}
	if err := a.lockState(); err != nil {
		return nil, err
	}
	restored := restore && a.restoreLayers()
	if err := a.build(); err != nil {
		err = errors.Join(err, a.close())
		if restored {
			return a, err
		}
		return nil, err
	}
	return a, nil
}

// build makes the parts of an agent.
func (a *Agent) build() error {
	o := a.opt
	machine, tree, err := a.readMachine()
	if err != nil {
		return err
	}
	a.node = nodeOf(o)
	a.node.tree, a.node.resctrl, a.node.createsDirs = tree, a.openResctrl(), o.Tree == nil && !isObserveMode(o.Config)
	a.node.namespaces = &namespaces.Store{}
	if kept := a.files.load(namespacesFile); kept != nil {
		a.node.namespaces.Load(kept)
	}
	if o.Cookies == nil && o.Tree == nil {
		a.node.cookies = coresched.Real{}
	}
	if o.Processes == nil && o.Tree == nil {
		a.node.processes = process.Real{}
	}
	a.settings = &settings{log: o.Log, logLevel: o.LogLevel, setLogFormat: o.SetLogFormat, override: o.Override, node: a.node, machine: machine, config: o.Config, generation: 1, observesOnly: isObserveMode(o.Config)}
	a.layeredConfig.apply, a.layeredConfig.applyServerConfig, a.layeredConfig.report = a.settings.applyFile, a.settings.applyServerLayers, a.reportConfig
	policy, err := policyOf(o.Config, machine, a.node)
	if err != nil {
		return err
	}
	key, err := a.files.recordKey()
	if err != nil {
		return err
	}
	a.metrics = newMetrics(o)
	a.cluster = connectCluster(o.Config.Cluster, kube.Options{Version: o.Version, Log: o.Log, Spread: cmp.Or(o.MaxStartDelay, maxStartDelay)})
	a.specs, a.grants = a.newSpecChain(a.cluster.client), a.newGrants()
	a.keeper = a.newKeeper(tree)
	a.conductor = conductor.New(conductor.Options{
		Machine: machine, Policy: policy, Keeper: a.keeper, Key: key, HasEarlierKey: a.files.hasEarlierKey, Log: o.Log,
		Now: time.Now, Tuning: conductorTuning(o.Config), Checkpoint: a.files.load(checkpointFile), Recorder: a.metrics, Specs: a.specs,
		Grants: a.grants, HookServers: a.newHookServers(), Plugins: a.newResourcePlugins(), DecidesAhead: o.Config.Ahead.Enabled, SweepInterval: o.SweepInterval,
		FreeMemory: o.FreeMemory, NodeNow: a.settings.recordedNode, ObserveOnly: isObserveMode(o.Config),
		HasInterface: interfaceProbe(o), NodeDevices: a.node.cdi.devices, FormerAgent: a.readTakeover(), Claims: newClaimSource(o, a.node.cdi), CPUClasses: a.newCPUClassWriter(), Demoter: a.newDemoter(machine),
	})
	warnOfMissingDirs(o)
	a.settings.conductor = a.conductor
	a.ahead = a.newAhead()
	if err := a.makeAttachments(); err != nil {
		return err
	}
	a.cluster.services = a.clusterServices(a.cluster.client)
	a.otherAgent.lock = nodelock.New(nodelock.Self(o.Config.Attach, o.ConfigFile, o.Version), a.lockedDirs()...)
	a.metrics.AddStateMetrics(a.metricsSummary)
	a.metrics.AddProcessMetrics()
	return nil
}

// newKeeper makes the keeper, which writes the node's cgroup files. It adds the keeper's writers for resctrl, core
// scheduling and processes.
func (a *Agent) newKeeper(tree *cgroup.Tree) *keeper.Keeper {
	k := keeper.New(tree)
	if isObserveMode(a.opt.Config) {
		k.Observe(lifecycle.RDTSchemata, lifecycle.RDTGroup, lifecycle.RDTMonitor, lifecycle.CoreSched)
		return k
	}
	a.close = a.files.keepOriginals(k, a.close)
	if a.node.resctrl != nil {
		k.RegisterActor(keeper.RDT{Groups: resctrl.New(a.node.resctrl)}, lifecycle.RDTSchemata, lifecycle.RDTGroup, lifecycle.RDTMonitor)
	}
	if a.node.cookies != nil {
		k.RegisterActor(keeper.CoreSched{Groups: coresched.New(a.node.cookies)}, lifecycle.CoreSched)
	}
	if a.node.processes != nil {
		k.RegisterActor(keeper.Process{Writer: process.New(a.node.processes)}, lifecycle.ProcessLimit, lifecycle.ProcessIO, lifecycle.ProcessSched)
	}
	return k
}

// openResctrl opens the node's resctrl tree. It returns nil if the node has none.
func (a *Agent) openResctrl() resctrl.FS {
	if a.opt.Resctrl != nil || a.opt.Tree != nil {
		return a.opt.Resctrl
	}
	files, err := resctrl.OpenRoot(a.opt.Config.Paths.Resctrl)
	if err != nil {
		return nil // the probe of resctrl reports the error
	}
	closeTree := a.close
	a.close = func() error { return errors.Join(closeTree(), files.Close()) }
	return files
}

// socketOf returns the path of the socket in an endpoint such as unix:///run/containerd/containerd.sock.
func socketOf(endpoint string) string { return strings.TrimPrefix(endpoint, "unix://") }

// readMachine returns the machine and the cgroup tree of the options. If the options have no machine, it reads the
// files of the node. If they have no tree, it opens the node's cgroup tree.
func (a *Agent) readMachine() (*topology.Machine, *cgroup.Tree, error) {
	m := a.opt.Machine
	if m == nil {
		var err error
		root := a.opt.Config.Paths.Sys
		if m, err = sysfs.Read(os.DirFS(root)); err != nil {
			return nil, nil, fmt.Errorf("read the node's topology below %s (paths.sys): %w", root, err)
		}
	}
	if a.opt.Tree != nil {
		return m, a.opt.Tree, nil
	}
	c := a.opt.Config.Cgroup
	files, err := cgroup.OpenRoot(c.Root)
	if err != nil {
		return nil, nil, fmt.Errorf("open the cgroup tree (cgroup.root): %w", err)
	}
	closeLock := a.close
	a.close = func() error { return errors.Join(files.Close(), closeLock()) }
	tree, err := treeOf(files, c)
	return m, tree, err
}

// treeOf makes a cgroup tree of the configured version, or of the mounted version if none is configured.
func treeOf(files *cgroup.Real, c config.Cgroup) (*cgroup.Tree, error) {
	switch c.Version {
	case "v1":
		return &cgroup.Tree{FS: files, Version: cgroup.V1}, nil
	case "v2":
		return &cgroup.Tree{FS: files, Version: cgroup.V2}, nil
	}
	tree, err := cgroup.Open(files)
	if err != nil {
		return nil, fmt.Errorf("find the cgroup version of %s (cgroup.root): %w", c.Root, err)
	}
	return tree, nil
}

// Run attaches to the runtime and runs the agent's services until ctx ends or an error ends the agent. Containers keep
// their values after Run returns. Run ends the attachments before the services, so that the agent still decides about
// the last events and saves the decisions.
func (a *Agent) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	inner, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group, inner := errgroup.WithContext(inner)
	defer context.AfterFunc(inner, stop)()
	a.otherAgent.openSocket(ctx)
	a.serve(inner, group)

	// The pod specs must be known before the runtime lists its containers. The runtime reports only what a pod requested
	// when it was created, not later changes.
	a.specs.AwaitFirst(ctx)
	err := a.attachments.run(ctx)
	end()
	err = errors.Join(err, group.Wait())
	if save := a.files.save(checkpointFile); save != nil {
		a.conductor.Checkpoint().SaveNow(save)
	}
	// The next agent reads the saved files when it gets the lock, so the lock is released last.
	return errors.Join(err, a.close(), a.otherAgent.lock.Release())
}

// serve starts all services of the agent in the group.
func (a *Agent) serve(ctx context.Context, group *errgroup.Group) {
	group.Go(func() error { return a.conductor.Run(ctx) })
	group.Go(func() error { return a.watchDrift(ctx) })
	if a.opt.Machine == nil {
		h := hardwareWatcher{sys: os.DirFS(a.opt.Config.Paths.Sys), log: a.log, settings: a.settings}
		group.Go(func() error { h.watch(ctx); return nil })
	}
	group.Go(func() error { return a.specs.Run(ctx) })
	group.Go(func() error { return a.grants.Run(ctx) })
	if a.hookServers != nil {
		group.Go(func() error { return a.hookServers.Run(ctx) })
	}
	if a.resourcePlugins != nil {
		group.Go(func() error { return a.resourcePlugins.Run(ctx) })
	}
	if a.ahead != nil {
		group.Go(func() error { a.ahead.Run(ctx); return nil })
	}
	if a.opt.Config.Paths.State != "" {
		group.Go(func() error { return a.conductor.Checkpoint().SaveChanges(ctx, a.files.save(checkpointFile)) })
		group.Go(func() error { return a.keeper.Originals.RetrySaving(ctx) })
	}
	if a.opt.Config.Paths.StatusSocket != "" {
		group.Go(func() error { a.otherAgent.serve(ctx, a.Source()); return nil })
	}
	group.Go(func() error { a.settings.repeatProbes(ctx); return nil })
	group.Go(func() error { a.settings.watchHookFiles(ctx); return nil })
	group.Go(func() error { a.newReadinessWatcher().run(ctx); return nil })
	group.Go(func() error { kube.Run(ctx, a.cluster.services...); return nil })
	if address := a.opt.Config.HTTP.Address; address != "" {
		group.Go(func() error { return a.serveHTTP(ctx, address) })
	}
	if a.opt.Config.PodResources.Socket != "" {
		group.Go(func() error { a.servePodResources(ctx); return nil })
	}
	if a.opt.ConfigFile != "" {
		group.Go(func() error { a.watchConfigFile(ctx); return nil })
	}
}

// watchConfigFile applies changes of the configuration file until ctx ends.
func (a *Agent) watchConfigFile(ctx context.Context) {
	inForce := a.fileConfig
	f := config.Follower{
		File: a.opt.ConfigFile, InForce: &inForce, Parse: a.layeredConfig.parse, Override: a.opt.Override, Apply: a.notifyReload(a.layeredConfig.applyFile), Report: a.settings.setFileErr, ReadNow: a.opt.Reload,
	}
	if err := f.Run(ctx); err != nil {
		a.log.Error("the agent cannot watch the configuration file for changes", logkey.File, a.opt.ConfigFile, logkey.Err, err)
	}
}

// Reconfigure applies a new configuration to running and new pods. It logs the changed keys that take effect only
// after a restart of the agent.
func (a *Agent) Reconfigure(c config.Config) error { return a.settings.apply(c) }

// Connected reports whether an attachment is registered and synchronised.
func (a *Agent) Connected() bool {
	for _, at := range nodeview.Status(a.conductor).Attachments {
		if at.State == "connected" {
			return true
		}
	}
	return false
}

// Source returns the source from which the status server gets its answers.
func (a *Agent) Source() status.Source { return source{a} }

// source answers the requests of the status server with the state of the conductor and the agent.
type source struct{ a *Agent }

// Status returns the state of the node and the agent, as `trimtab status` shows it.
func (s source) Status() api.Node {
	s.a.conductor.Compare()
	n := nodeview.Status(s.a.conductor)
	s.a.ownerLetters.Mark(n.CPUs.Grants)
	n.Hooks = s.a.settings.hooks()
	n.PodSpecs = specSourceStates(s.a.specs)
	granted := specSourceState(s.a.grants.State())
	n.Grants = &granted
	n.HookServers = s.a.hookServerStatus()
	n.NRIHost, n.ResourcePlugins = s.a.nriHostStatus(), s.a.resourcePluginStatus()
	n.CDIDevices = nodeview.DeviceKinds(s.a.conductor, s.a.ownableDevices())
	n.Agent, n.Standby = s.a.otherAgent.lock.Self(), s.a.otherAgent.standby()
	n.Simulated = s.a.isMachineSimulated()
	n.Version, n.Started, n.ConfigFile = s.a.opt.Version, s.a.startTime, s.a.opt.ConfigFile
	n.Unsaved = s.a.files.unsavedFiles(s.a.keeper.Originals.JournalError())
	n.Cluster = s.a.clusterStatus() // before settings.mu is locked, because clusterStatus waits for code that locks settings.mu
	var notReady string
	if err := s.a.Ready(); err != nil {
		notReady = err.Error()
	}
	set := s.a.settings
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.config.Authority == "kubelet" {
		n.KubeletCPUs = granted.CPUSource()
	}
	n.Released, n.ReleasedAt = !set.releasedAt.IsZero(), set.releasedAt
	n.ConfigGen, n.ConfigError = set.generation, set.refusedReason()
	n.Attachments, n.NotReady = s.a.attachments.forStatus(n.Attachments), notReady
	return n
}

// Explain returns the decisions about the containers of a pod, as `trimtab explain` shows them. container is "" for all
// containers. The result is false if the agent does not know the pod or container.
func (s source) Explain(namespace, pod, container string) ([]api.Container, bool) {
	s.a.conductor.Compare()
	found, known := nodeview.Explain(s.a.conductor, namespace, pod, container)
	for i := range found {
		found[i].ReleasedAt = s.a.settings.releaseTime()
	}
	return found, known
}

// Events returns the events in the journal after the event with the number since, and a channel that is closed at the
// next event.
func (s source) Events(ctx context.Context, since uint64) ([]api.Event, <-chan struct{}) {
	return s.a.conductor.Journal().Since(since)
}
