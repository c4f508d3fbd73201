package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trimtab/trimtab/internal/attach/auto"
	"github.com/trimtab/trimtab/internal/attach/bypass"
	"github.com/trimtab/trimtab/internal/attach/cri"
	"github.com/trimtab/trimtab/internal/attach/nri"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/coresched"
	"github.com/trimtab/trimtab/internal/extend/hookserver"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodelock"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/report/metrics"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/resctrl"
	"github.com/trimtab/trimtab/internal/socket"
	"github.com/trimtab/trimtab/internal/statefile"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/sysfs"
)

// Options are what an agent is made of. Machine and Tree are given by tests and
// the embedded runtime; left nil, they are read from the node, as are
// the devices of Host.
type Options struct {
	Config     config.Config
	ConfigFile string // followed for changes; "" for none
	// Override puts what stands above the file (flags) over each configuration
	// read from it; nil for nothing.
	Override func(*config.Config)
	// Level follows log.level; nil where the log has another master.
	Level   *slog.LevelVar
	Version string
	Commit  string
	Log     *slog.Logger
	Machine *topology.Machine
	Tree    *cgroup.Tree
	Host    *lifecycle.Host
	Resctrl resctrl.FS
	Cookies coresched.Kernel
	// Listeners are sockets the CRI proxy serves instead of its own.
	Listeners []net.Listener
	// Watch tells of changes of Tree; nil for the node's own.
	Watch func() (cgroup.Watcher, error)
	// Proc is where the bypass finds processes; "" for /proc.
	Proc string
	// Look is how often the bypass asks for each container's resources; 0 for
	// its default.
	Look time.Duration
	// Sweep is how often it is looked for pods that ended unnoticed and containers
	// without a cgroup; 0 for the conductor's default.
	Sweep time.Duration
	// CgroupDir stands for the kubelet's cgroup root where Tree is given, as the
	// directory that agents of one node lock; "" for none.
	CgroupDir string
	// Files makes the calls of a directory of state files; nil for the disk.
	Files func(dir string) statefile.FS
	// Dial connects to the runtime; nil for the system's call.
	Dial socket.Dialer
	// DialKubelet connects to the kubelet, at host:port or the path of a socket; nil for the system's call.
	DialKubelet socket.Dialer
	// Polls: NRI polls for the runtime's socket instead of watching it with inotify.
	Polls bool
	// Accept wraps the listener of the status socket; nil leaves it as it is.
	Accept func(net.Listener) net.Listener
}

// Agent is a Trimtab that runs on a node.
type Agent struct {
	opt       Options
	log       *slog.Logger
	machine   *topology.Machine
	node      node
	conductor *conductor.Conductor
	specs     *podspec.Ladder
	grants    *podspec.Grants
	servers   *hookserver.Servers // nil where nobody is asked
	nri       *nri.Attachment
	bypass    *bypass.Attachment
	cri       *cri.Attachment
	auto      *auto.Switch // between nri and bypass
	metrics   *metrics.Metrics
	started   time.Time
	keeper    *keeper.Keeper
	state     *statefile.Dir // paths.state; nil where nothing is kept
	seal      []byte         // signs state files
	returning bool           // the key was there: an agent has run here before
	close     func() error
	lock      *nodelock.Lock // against a second agent
	// neighbour is what is known of that one.
	neighbour neighbour

	// applying is held while a policy is made and put in force: the last one made
	// is the one in force.
	applying sync.Mutex

	mu         sync.Mutex // guards all below, and machine
	config     config.Config
	generation uint64
	badConfig  string            // why a newer file is not in force
	dropIn     bool              // the configuration came from the runtime
	released   bool              // nothing is decided any more
	unsaved    map[string]string // why a state file's last save failed, by name
}

// New makes an agent. Nothing is attached and nothing is written to the kernel
// before Run.
func New(o Options) (*Agent, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a := &Agent{
		opt: o, log: o.Log, machine: o.Machine, config: o.Config, generation: 1, started: time.Now(),
		close: func() error { return nil },
	}
	if err := a.own(); err != nil {
		return nil, err
	}
	tree, err := a.look()
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	a.node = node{tree: tree, devices: hostOf(o.Config.Paths), makes: o.Tree == nil}
	if o.Host != nil {
		a.node.devices = func() (lifecycle.Host, error) { return *o.Host, nil }
	}
	a.node.resctrl, a.node.cookies = a.resctrl(), o.Cookies
	if o.Cookies == nil && o.Tree == nil {
		a.node.cookies = coresched.Real{}
	}
	policy, err := policyOf(o.Config, a.machine, a.node)
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	key, err := a.recordKey()
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	a.metrics = newMetrics(o)
	a.specs, a.grants = a.ladder(), a.newGrants()
	a.keeper = a.newKeeper(tree)
	a.conductor = conductor.New(conductor.Options{
		Machine: a.machine, Policy: policy, Keeper: a.keeper, Key: key, Returning: a.returning, Log: o.Log,
		Now: time.Now, Tuning: tuning(o.Config), Checkpoint: a.loadState(checkpointName), Recorder: a.metrics, Specs: a.specs,
		Grants: a.grants, HookServers: a.askedServers(), Sweep: o.Sweep, FreeMemory: debug.FreeOSMemory,
	})
	if err := a.attach(); err != nil {
		return nil, errors.Join(err, a.close())
	}
	a.lock = nodelock.New(nodelock.Self(o.Config.Attach, o.ConfigFile, o.Version), a.places()...)
	a.metrics.Watch(a.summary)
	a.metrics.WatchProcess()
	return a, nil
}

// newKeeper makes the keeper of the node's cgroups and of what is beside them.
func (a *Agent) newKeeper(tree *cgroup.Tree) *keeper.Keeper {
	k := keeper.New(tree)
	a.keepOriginals(k)
	if a.node.resctrl != nil {
		k.Use(keeper.RDT{Groups: resctrl.New(a.node.resctrl)}, lifecycle.RDTSchemata, lifecycle.RDTGroup, lifecycle.RDTMonitor)
	}
	if a.node.cookies != nil {
		k.Use(keeper.CoreSched{Groups: coresched.New(a.node.cookies)}, lifecycle.CoreSched)
	}
	return k
}

// resctrl opens the node's resctrl tree; nil where there is none.
func (a *Agent) resctrl() resctrl.FS {
	if a.opt.Resctrl != nil || a.opt.Tree != nil {
		return a.opt.Resctrl
	}
	files, err := resctrl.OpenRoot(a.opt.Config.Paths.Resctrl)
	if err != nil {
		return nil // the probe says so
	}
	closeTree := a.close
	a.close = func() error { return errors.Join(closeTree(), files.Close()) }
	return files
}

// socketOf returns the path of an endpoint.
func socketOf(endpoint string) string { return strings.TrimPrefix(endpoint, "unix://") }

// look reads what was not given: the machine, and its cgroup files.
func (a *Agent) look() (*cgroup.Tree, error) {
	if a.machine == nil {
		root := a.opt.Config.Paths.Sys
		m, err := sysfs.Read(os.DirFS(root))
		if err != nil {
			return nil, fmt.Errorf("read the node's topology below %s (paths.sys): %w", root, err)
		}
		a.machine = m
	}
	if a.opt.Tree != nil {
		return a.opt.Tree, nil
	}
	c := a.opt.Config.Cgroup
	files, err := cgroup.OpenRoot(c.Root)
	if err != nil {
		return nil, fmt.Errorf("open the cgroup tree (cgroup.root): %w", err)
	}
	closeLock := a.close
	a.close = func() error { return errors.Join(files.Close(), closeLock()) }
	tree, err := treeOf(files, c)
	if err != nil {
		return nil, err
	}
	return tree, nil
}

// treeOf makes a tree of the configured version of what is mounted.
func treeOf(files *cgroup.Real, c config.Cgroup) (*cgroup.Tree, error) {
	switch c.Version {
	case "v1":
		return &cgroup.Tree{FS: files, Version: cgroup.V1}, nil
	case "v2":
		return &cgroup.Tree{FS: files, Version: cgroup.V2}, nil
	}
	tree, err := cgroup.Open(files)
	if err != nil {
		return nil, fmt.Errorf("find the cgroup version of %s: %w", c.Root, err)
	}
	return tree, nil
}

// Run attaches to the runtime and serves until ctx ends or the agent cannot go
// on. Containers keep what they have when it returns. What is attached ends
// first: calls under way are decided to their end, and what they changed is
// saved with the rest.
func (a *Agent) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	inner, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group, inner := errgroup.WithContext(inner)
	defer context.AfterFunc(inner, stop)()
	a.openStatus(ctx)
	a.serve(inner, group)

	err := a.attached(ctx)
	end()
	err = errors.Join(err, group.Wait())
	if save := a.saveState(checkpointName); save != nil {
		a.conductor.Checkpoint().Finish(save)
	}
	// The next agent reads what was saved, so the lock is the last to go.
	return errors.Join(err, a.close(), a.lock.Release())
}

// serve starts what goes on until nothing is attached any more.
func (a *Agent) serve(ctx context.Context, group *errgroup.Group) {
	group.Go(func() error { return a.conductor.Run(ctx) })
	group.Go(func() error { return a.guard(ctx) })
	if a.opt.Machine == nil {
		group.Go(func() error { a.followHardware(ctx); return nil })
	}
	group.Go(func() error { return a.specs.Run(ctx) })
	group.Go(func() error { return a.grants.Run(ctx) })
	if a.servers != nil {
		group.Go(func() error { return a.servers.Run(ctx) })
	}
	if a.opt.Config.Paths.State != "" {
		group.Go(func() error { return a.conductor.Checkpoint().Keep(ctx, a.saveState(checkpointName)) })
		group.Go(func() error { return a.keeper.Originals.KeepTrying(ctx) })
	}
	if a.opt.Config.Paths.StatusSocket != "" {
		group.Go(func() error { a.serveStatus(ctx); return nil })
	}
	group.Go(func() error {
		a.settleProbes(ctx)
		return nil
	})
	if address := a.opt.Config.HTTP.Address; address != "" {
		group.Go(func() error { a.serveHTTP(ctx, address); return nil })
	}
	if a.opt.ConfigFile != "" {
		group.Go(func() error { return a.follow(ctx) })
	}
}

// attached is attached until ctx ends. A plugin the runtime launched ends with
// its connection.
func (a *Agent) attached(ctx context.Context) error {
	// What runs is taken over with what its pods say now: a runtime tells what they said when they were made.
	a.specs.Ready(ctx)
	switch {
	case a.auto != nil:
		return a.auto.Run(ctx, a.nri, a.bypass)
	case a.nri != nil:
		return a.nri.Run(ctx)
	case a.cri != nil:
		return a.cri.Run(ctx)
	case a.bypass != nil:
		return a.bypass.Run(ctx)
	}
	<-ctx.Done()
	return nil
}

func (a *Agent) follow(ctx context.Context) error {
	inForce := a.opt.Config
	f := config.Follower{File: a.opt.ConfigFile, InForce: &inForce, Override: a.opt.Override, Apply: a.fromFile, Report: a.configProblem}
	if err := f.Run(ctx); err != nil {
		a.log.Error("the configuration file is not followed", logkey.File, a.opt.ConfigFile, logkey.Err, err)
	}
	return nil
}

// configProblem notes why a newer configuration is not in force; nil, that it
// is again.
func (a *Agent) configProblem(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.badConfig = ""
		return
	}
	a.badConfig = err.Error()
	a.log.Error("the new configuration is refused; the old one stays in force", logkey.Err, err)
}

// fromFile takes a changed configuration file, unless the runtime gave us a
// configuration of its own: of the two the one nearer to our start counts.
func (a *Agent) fromFile(c config.Config) error {
	a.mu.Lock()
	dropIn := a.dropIn
	a.mu.Unlock()
	if dropIn {
		return errors.New("the runtime's drop-in is in force; this file is not used")
	}
	return a.Reconfigure(c)
}

// fromRuntime takes the configuration a runtime hands to a plugin it launched.
func (a *Agent) fromRuntime(yaml string) error {
	c, err := config.Parse("the runtime's drop-in", []byte(yaml))
	if err != nil {
		a.configProblem(err)
		return err
	}
	if a.opt.Override != nil {
		a.opt.Override(&c)
	}
	a.mu.Lock()
	a.dropIn = true
	inForce := a.config
	a.mu.Unlock()
	unheeded := keepStart(&c, inForce)
	if err := a.Reconfigure(c); err != nil {
		return err
	}
	if len(unheeded) > 0 {
		a.partly(fmt.Errorf("the runtime's drop-in: %s: read before the runtime hands a drop-in over, so it has no effect there; "+
			"say it in the configuration file; all else is in force", strings.Join(unheeded, ", ")))
	}
	return nil
}

// partly notes what of the configuration in force has no effect.
func (a *Agent) partly(err error) {
	a.mu.Lock()
	a.badConfig = err.Error()
	a.mu.Unlock()
	a.log.Error("a part of the configuration has no effect", logkey.Err, err)
}

// Reconfigure puts a new configuration in force for what lives and what comes.
// Settings that only a start can change are named and keep their old value.
func (a *Agent) Reconfigure(c config.Config) error {
	a.applying.Lock()
	defer a.applying.Unlock()
	policy, err := policyOf(c, a.hardware(), a.node)
	if err != nil {
		return err
	}
	a.mu.Lock()
	old := a.config
	a.config, a.badConfig = c, ""
	a.generation++
	gen, released := a.generation, a.released
	a.mu.Unlock()
	if released {
		policy = nothing(policy)
	}
	if a.opt.Level != nil {
		_ = a.opt.Level.UnmarshalText([]byte(c.Log.Level)) // validated
	}
	for _, key := range needRestart(old, c) {
		a.log.Warn("a changed setting takes effect at the next start of the agent", logkey.Key, key)
	}
	a.conductor.Configure(policy, tuning(c))
	a.log.Info("configuration in force", logkey.Generation, gen)
	return nil
}

// keepStart puts back into a drop-in what only a start reads, and names what of
// it the drop-in says. What it leaves at the default it does not say.
func keepStart(c *config.Config, inForce config.Config) []string {
	said := func(key string, is bool) []string {
		if !is {
			return nil
		}
		return []string{key}
	}
	def := config.Default()
	keys := said("cgroup", c.Cgroup != inForce.Cgroup && c.Cgroup != def.Cgroup)
	keys = append(keys, said("paths", c.Paths != inForce.Paths && c.Paths != def.Paths)...)
	keys = append(keys, said("http", c.HTTP != inForce.HTTP && c.HTTP != def.HTTP)...)
	keys = append(keys, said("log.format", c.Log.Format != inForce.Log.Format && c.Log.Format != def.Log.Format)...)
	seat := func(n config.NRI) config.NRI {
		return config.NRI{Enabled: n.Enabled, Socket: n.Socket, Name: n.Name, Index: n.Index}
	}
	mine, theirs, plain := seat(inForce.NRI), seat(c.NRI), seat(def.NRI)
	keys = append(keys, said("nri (but for cede and updateIntervalMilliseconds)", !reflect.DeepEqual(theirs, mine) && !reflect.DeepEqual(theirs, plain))...)
	keys = append(keys, said("failurePolicy.agent (the runtime was told another before; our own part is in force)",
		c.FailurePolicy.Agent != inForce.FailurePolicy.Agent && c.FailurePolicy.Agent != def.FailurePolicy.Agent)...)
	c.Cgroup, c.Paths, c.HTTP, c.Log.Format = inForce.Cgroup, inForce.Paths, inForce.HTTP, inForce.Log.Format
	c.NRI.Enabled, c.NRI.Socket, c.NRI.Name, c.NRI.Index = mine.Enabled, mine.Socket, mine.Name, mine.Index
	return keys
}

// needRestart names the changed keys that only a start reads.
func needRestart(old, c config.Config) []string {
	var keys []string
	if old.Cgroup != c.Cgroup {
		keys = append(keys, "cgroup")
	}
	if old.PodSpec != c.PodSpec {
		keys = append(keys, "podspec")
	}
	if old.Paths != c.Paths {
		keys = append(keys, "paths")
	}
	if old.HTTP != c.HTTP {
		keys = append(keys, "http")
	}
	if old.FailurePolicy.Agent != c.FailurePolicy.Agent {
		keys = append(keys, "failurePolicy.agent (the runtime is told at the next connection; our own part is in force)")
	}
	if old.Log.Format != c.Log.Format {
		keys = append(keys, "log.format")
	}
	if old.Attach != c.Attach {
		keys = append(keys, "attach")
	}
	if old.CRI != c.CRI {
		keys = append(keys, "cri")
	}
	if old.Bypass != c.Bypass {
		keys = append(keys, "bypass")
	}
	if old.HookServers != c.HookServers {
		keys = append(keys, "hookServers")
	}
	if old.NRI.Enabled != c.NRI.Enabled || old.NRI.Socket != c.NRI.Socket || old.NRI.Name != c.NRI.Name || old.NRI.Index != c.NRI.Index {
		keys = append(keys, "nri")
	}
	return keys
}

// Connected reports whether an attachment is registered and synchronised.
func (a *Agent) Connected() bool {
	for _, at := range nodeview.Status(a.conductor).Attachments {
		if at.State == "connected" {
			return true
		}
	}
	return false
}

// Source is what the status server and tests ask.
func (a *Agent) Source() status.Source { return source{a} }

// source adds to the conductor's answers what the agent knows of itself.
type source struct{ a *Agent }

func (s source) Status() api.Node {
	n := nodeview.Status(s.a.conductor)
	n.Hooks = s.a.hooks()
	n.PodSpecs = s.a.specSources()
	granted := sourceOf(s.a.grants.State())
	n.Grants = &granted
	n.HookServers = s.a.hookServers()
	n.Agent, n.Standby = s.a.lock.Self(), s.a.standby()
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	if s.a.config.Authority == "kubelet" {
		n.KubeletCPUs = granted.TellsCPUs()
	}
	n.Version, n.Started, n.Released = s.a.opt.Version, s.a.started, s.a.released
	n.ConfigFile, n.ConfigGen, n.ConfigError = s.a.opt.ConfigFile, s.a.generation, s.a.badConfig
	n.Unsaved = s.a.unsavedLocked()
	n.Attachments = s.a.told(n.Attachments)
	for i := range n.Attachments {
		s.a.addRuntime(&n.Attachments[i])
	}
	return n
}

func (s source) Explain(namespace, pod, container string) ([]api.Container, bool) {
	return nodeview.Explain(s.a.conductor, namespace, pod, container)
}

func (s source) Events(ctx context.Context, since uint64) ([]api.Event, <-chan struct{}) {
	return s.a.conductor.Journal().Since(since)
}
