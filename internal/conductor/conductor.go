package conductor

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/facts"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/record"
	"github.com/trimtab/trimtab/internal/recording"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/runtimesync"
	"github.com/trimtab/trimtab/internal/topology"
)

// Options are the components and settings of a conductor.
type Options struct {
	Machine *topology.Machine
	Policy  engine.Policy
	Keeper  *keeper.Keeper
	// Key signs the records that containers carry.
	Key []byte
	// Returning: an earlier agent used this key, and may have written to the kernel.
	HasEarlierKey bool
	Log           *slog.Logger
	// Now is time.Now. Its readings have a monotonic part, which is used to measure all waits.
	Now func() time.Time
	Tuning
	// Checkpoint is the last saved checkpoint; empty if there is none.
	Checkpoint []byte
	// Recorder counts events; nil for none.
	Recorder nodeview.Recorder
	// Specs are the sources of pod specs; nil for none.
	Specs facts.Specs
	// Grants are the sources of the kubelet's grants; nil for none.
	Grants facts.Grants
	// HookServers are the external hook servers; nil for none.
	HookServers facts.HookServers
	// Plugins are the resource plugins; nil for none.
	Plugins facts.ResourcePlugins
	// HasInterface reports whether the host has a network interface; nil if that is not known of any.
	HasInterface func(name string) (has, known bool)
	// Ahead: an Ahead decides pods before a runtime reports them.
	Ahead bool
	// Sweep is the interval between checks for pods that ended without an event of the runtime;
	// default: 5 s.
	Sweep time.Duration
	// NodeNow describes the node and its configuration for a recording.
	NodeNow func() recording.Node
	// Observe: decide, and change nothing. The keeper must observe, too.
	Observe bool
	// FreeMemory returns memory to the system after a runtime's whole list was
	// read, of which little is kept; nil for nothing.
	FreeMemory func()
}

// Tuning has the conductor's own settings, which a reload can change.
type Tuning struct {
	// Pace is the pause between two updates of the runtime's stored copies.
	Pace time.Duration
	// Ceded are fields that other NRI plugins own. The agent does not set them at a container's
	// creation. It writes them when the container starts, and reports that.
	Ceded []lifecycle.Field
	// Fail refuses a container if an error of the agent prevents the decision. Otherwise the
	// container is created without our values.
	Fail bool
	// ConflictLimit says when the keeper leaves a file to another program that writes it.
	ConflictLimit keeper.ConflictLimit
}

// Conductor is the only writer of the engine's state.
type Conductor struct {
	keeper  *keeper.Keeper
	log     *slog.Logger
	now     func() time.Time
	reports *nodeview.Reporter
	facts   *facts.Gatherer
	fail    atomic.Bool
	ops     atomic.Uint32
	uptimes uptimes

	// turn serializes events. A runtime sends its events one after another, but several
	// runtimes do not.
	turn sync.Mutex

	// answered is a creation that was answered and is not confirmed yet; guarded by turn.
	// confirmDue fires if no other event confirms it first.
	answered   *work
	confirmDue *time.Timer
	// continuing counts Synchronize events that continue after their answer. Run waits for them.
	continuing sync.WaitGroup

	node           *node // its mu guards all below
	presence       *facts.Presence
	hasEarlierKey  bool      // Options.Returning
	checkedEarlier bool      // the check for an earlier agent is done
	synced         time.Time // the time of the last Synchronize that was decided and applied
	sweepEvery     time.Duration
	freeMemory     func()
	listeners      listeners
	observe        *observer // nil in mode enforce
}

// attached is a connected runtime and its attachment.
type attached struct {
	from    Carrier
	runtime Runtime
}

// New makes a conductor for a node without pods.
func New(o Options) *Conductor {
	if o.Recorder == nil {
		o.Recorder = nodeview.NoRecorder{}
	}
	if o.FreeMemory == nil {
		o.FreeMemory = func() {}
	}
	n := &node{
		ceded: setOf(o.Ceded), failedCreates: map[placement.Key]int{}, undone: map[placement.Key]int{}, conflicts: map[placement.Key]*conflict{}, tracks: map[string]*track{},
		signer: record.NewSigner(o.Key), state: engine.NewState(o.Machine, o.Policy),
		queue: runtimesync.NewQueue(o.Now, o.Pace), runtimes: map[string]attached{}, unified: o.Keeper.Tree().Version == cgroup.V2,
	}
	n.checkpoint = record.Open(o.Checkpoint, &n.mu, o.Log)
	c := &Conductor{
		node: n, keeper: o.Keeper, log: o.Log, now: o.Now,
		hasEarlierKey: o.HasEarlierKey, sweepEvery: cmp.Or(o.Sweep, sweepInterval),
		freeMemory: o.FreeMemory, confirmDue: time.NewTimer(never), listeners: listeners{nodeNow: o.NodeNow},
	}
	if o.Observe {
		c.observe = &observer{}
	}
	c.reports = &nodeview.Reporter{Source: c, Log: o.Log, Now: o.Now, Count: o.Recorder}
	c.uptimes.start(o.Now())
	c.keeper.SetClock(o.Now)
	c.keeper.SetConflictLimit(o.ConflictLimit)
	c.fail.Store(o.Fail)
	c.presence = facts.NewPresence(o.Keeper.Tree(), stateHolder{n}, o.Now, c.sweepEvery)
	c.facts = facts.New(facts.Options{
		Specs: o.Specs, Grants: o.Grants, HookServers: o.HookServers, Plugins: o.Plugins, Ahead: o.Ahead, Allowed: o.Keeper.ParentCPUs, HasInterface: o.HasInterface, Tree: o.Keeper.Tree(), Presence: c.presence, State: stateHolder{n},
		Signer: n.signer, Checkpoint: n.checkpoint, Log: o.Log,
		Renew: func(pod *lifecycle.Pod) {
			_, _ = c.run(c.newWork(nil, &lifecycle.Event{Kind: lifecycle.Inform, Pod: pod}))
		},
		Fault: func(hook string) { o.Recorder.HookError(cmp.Or(hook, nodeview.AgentPanic)) },
	})
	return c
}

// Handle decides one event, and applies what must be in force before the answer. The only error
// it returns is a *Rejection.
func (c *Conductor) Handle(ctx context.Context, from Carrier, ev lifecycle.Event) (Answer, error) {
	w := c.newWork(c.observing(from), &ev)
	c.trace(w, stepWait)
	got, done, err := c.facts.Gather(ctx, &w.capabilities, &ev)
	defer done()
	if err != nil { // a hook server refused it before the event got its turn
		err = &Rejection{Reason: err.Error()}
		c.reports.Refused(&w.done, err)
		return c.observe.answered(Answer{Op: w.done.Op}, err)
	}
	compact(&ev)
	w.facts.Unstoppable = ev.Kind == lifecycle.CreateContainer && !w.capabilities.CarriesRecords()
	w.done.Limit, w.done.Problems, w.facts.HookServers = got.Limit, got.Problems, got.HookServers
	return c.observe.answered(c.run(w))
}

// Configure applies a new policy to all pods: to the kernel at once, to the runtime's copies
// later, paced.
func (c *Conductor) Configure(p engine.Policy, t Tuning) { c.configure(engine.Facts{Policy: &p}, t) }

// ConfigureMachine is Configure with a machine made by topology.Machine.WithOnline, because
// CPUs went offline or came online.
func (c *Conductor) ConfigureMachine(m *topology.Machine, p engine.Policy, t Tuning) {
	c.configure(engine.Facts{Machine: m, Policy: &p}, t)
}

func (c *Conductor) configure(f engine.Facts, t Tuning) {
	w := c.newWork(nil, &lifecycle.Event{Kind: lifecycle.Configure})
	w.facts, w.first = f, func() { c.tune(t) }
	_, _ = c.run(w)
}

// unplaced returns the containers whose records do not say whether they were refused CPUs. A
// Synchronize or a changed configuration decides that afterwards.
func (n *node) unplaced(ev *lifecycle.Event, records map[string]engine.Record) map[string]bool {
	ids := map[string]bool{}
	for _, ctr := range ev.Containers { // of a Synchronize
		if ctr != nil {
			r, known := records[ctr.ID]
			ids[ctr.ID] = !known || r.Unplaced
		}
	}
	if ev.Kind == lifecycle.Configure {
		for _, id := range n.state.Containers() {
			ids[id] = n.state.Container(id).Unplaced
		}
	}
	return ids
}

// cpuLists formats sets of CPUs as kernel lists.
func cpuLists(sets map[string]topology.Set, m *topology.Machine) map[string]string {
	out := make(map[string]string, len(sets))
	for key, cpus := range sets {
		out[key] = m.Format(cpus)
	}
	return out
}

// Checkpoint returns the state that only this process has, so that it can be saved.
func (c *Conductor) Checkpoint() *record.Checkpoint { return c.node.checkpoint }

// Wants lists the kinds of events that the active hooks need, and those that report which pods
// and containers exist.
func (c *Conductor) Wants() []lifecycle.Kind {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	out := append(c.facts.Wants(), lifecycle.Synchronize)
	for _, h := range c.node.state.Policy.Hooks {
		out = append(out, h.Info().Stages...)
	}
	out = slices.DeleteFunc(out, func(k lifecycle.Kind) bool { return k >= lifecycle.Configure })
	slices.Sort(out)
	return slices.Compact(out)
}

// Attached registers a connected runtime, whose copies are updated from now on. It returns when
// the results of its Synchronize are in the kernel.
func (c *Conductor) Attached(from Carrier, r Runtime) {
	c.Flush()
	c.node.mu.Lock()
	c.node.runtimes[from.Name()] = attached{c.observing(from), r}
	c.node.queue.Due.Reset(0)
	c.node.mu.Unlock()
	c.log.Info("attached", logkey.Mode, from.Name(), logkey.Runtime, r.About())
}

// connected returns a connected runtime; the zero value if there is none.
func (n *node) connected() attached {
	for _, rt := range n.runtimes {
		return rt
	}
	return attached{}
}

// Detached unregisters a runtime that has disconnected; err is nil at an ordinary stop. Decisions stay in force.
func (c *Conductor) Detached(from Carrier, err error) {
	c.node.mu.Lock()
	delete(c.node.runtimes, from.Name())
	c.node.mu.Unlock()
	if err == nil {
		c.log.Info("detached", logkey.Mode, from.Name())
		return
	}
	c.log.Warn("detached", logkey.Mode, from.Name(), logkey.Err, err)
}

var _ Handler = (*Conductor)(nil)
