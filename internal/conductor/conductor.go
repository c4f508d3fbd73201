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
	"github.com/trimtab/trimtab/internal/cpuclass"
	"github.com/trimtab/trimtab/internal/demotion"
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
	// Key signs the records of containers.
	Key []byte
	// HasEarlierKey means that an earlier agent used this key, and possibly wrote to the kernel.
	HasEarlierKey bool
	Log           *slog.Logger
	// Now returns the current time, as time.Now does. The conductor measures all waits with the monotonic part of
	// this time.
	Now func() time.Time
	Tuning
	// Checkpoint is the last saved checkpoint; empty if there is none.
	Checkpoint []byte
	// Recorder counts events; nil for none.
	Recorder nodeview.Recorder
	// Specs are the sources of pod specs; nil for none.
	Specs facts.Specs
	// Grants are the sources of the CPUs, memory nodes and devices that the kubelet granted to containers; nil for
	// none.
	Grants facts.Grants
	// HookServers are the external hook servers; nil for none.
	HookServers facts.HookServers
	// Plugins are the resource plugins; nil for none.
	Plugins facts.ResourcePlugins
	// FormerAgent is another agent that this one takes over from; nil for none.
	FormerAgent facts.FormerAgent
	// HasInterface reports whether the host has a network interface, and whether this is known. It is nil if the
	// agent does not know the host's interfaces.
	HasInterface func(name string) (has, known bool)
	// NodeDevices returns the devices that the node's CDI specifications name; nil for none.
	NodeDevices func() []lifecycle.NodeDevice
	// CPUClasses writes the frequency and idle states of CPUs with a CPU class; nil if the agent must not write them.
	CPUClasses *cpuclass.Writer
	// Demoter asks the kernel to move cold memory to slow memory nodes; nil if the agent must not.
	Demoter *demotion.Demoter
	// Claims is the source of the CPUs that ResourceClaims (DRA) allocate to containers, and of the classes, pools and
	// balloon types that they select; nil for none.
	Claims facts.Claims
	// DecidesAhead means that an Ahead (see NewAhead) decides pods before a runtime reports them.
	DecidesAhead bool
	// SweepInterval is the interval between checks for pods that ended without an event of the runtime. The
	// default is 5 s.
	SweepInterval time.Duration
	// NodeNow returns a description of the node and its configuration, as they are now, for a recording of events.
	NodeNow func() recording.Node
	// ObserveOnly means that the conductor makes decisions, but changes nothing on the node. The keeper must be in
	// mode observe, too.
	ObserveOnly bool
	// FreeMemory returns unused memory to the operating system. The conductor calls it after a Synchronize, because
	// the agent then no longer needs most of the runtime's list. FreeMemory may be nil.
	FreeMemory func()
}

// Tuning has the conductor's own settings, which a reload can change.
type Tuning struct {
	// Pace is the pause between two updates of the values that the runtime stores for containers (the runtime's
	// copies).
	Pace time.Duration
	// Ceded are fields that other NRI plugins set. The agent does not set these fields at a container's creation.
	// The keeper writes their values when the container starts, and the status shows this.
	Ceded []lifecycle.Field
	// FailClosed means that the agent rejects a container's creation if an error of the agent prevents the
	// decision. Otherwise the container is created without the agent's values.
	FailClosed bool
	// ConflictLimit says when the keeper stops writing a kernel file that another program writes, too.
	ConflictLimit keeper.ConflictLimit
	// Demotion limits how much memory the kernel moves to slow memory nodes.
	Demotion demotion.Options
}

// Conductor is the only writer of the engine's state.
type Conductor struct {
	keeper  *keeper.Keeper
	log     *slog.Logger
	now     func() time.Time
	reports *nodeview.Reporter
	facts   *facts.Gatherer
	// failClosed means that failurePolicy.agent is "fail": if the decision of a creation panics, the creation is
	// rejected.
	failClosed atomic.Bool
	opCount    atomic.Uint32 // the number of events; the next event gets the next number as its op
	eventTimes eventTimes

	// eventMu is locked while an event is handled, so events run one after another. The event that is being handled
	// "has the turn", as ARCHITECTURE.md calls it. One runtime sends its events one after another, but two runtimes can
	// send events at the same time.
	eventMu sync.Mutex

	// unconfirmedCreate is the work for a creation of a container. The agent has answered the creation, and has not
	// noted and reported the results yet (the confirm step). eventMu guards unconfirmedCreate. confirmTimer runs the
	// confirm step if no other event runs it earlier.
	unconfirmedCreate *work
	confirmTimer      *time.Timer
	// afterAnswers counts work that continues after the answer to an event. This is the kernel writes of a Synchronize,
	// and decisions about pods that Inform skipped because the state did not have them yet. Run waits for this work.
	afterAnswers sync.WaitGroup

	node                *node           // node.mu also guards earlierAgentChecked and lastSync
	presence            *facts.Presence // finds pods and containers whose cgroup is missing
	hasEarlierKey       bool            // see Options.HasEarlierKey
	earlierAgentChecked bool            // the agent has checked whether an earlier agent wrote to the kernel
	lastSync            time.Time       // the time of the last Synchronize that was decided and applied
	sweepEvery          time.Duration   // see Options.SweepInterval
	freeMemory          func()          // see Options.FreeMemory
	listeners           listeners
	observer            *observer // nil in mode enforce
	cpuClasses          *cpuClasses
	demotion            *demoter
	formerAgent         facts.FormerAgent // see Options.FormerAgent; nil for none
}

// connectedRuntime is a connected runtime and its attachment.
type connectedRuntime struct {
	carrier Carrier
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
		cededFields: fieldSet(o.Ceded), failedCreates: map[placement.Key]int{}, endedCreates: map[placement.Key]int{}, conflicts: map[placement.Key]*conflict{}, tracks: map[string]*track{},
		signer: record.NewSigner(o.Key), state: engine.NewState(o.Machine, o.Policy),
		queue: runtimesync.NewQueue(o.Now, o.Pace), runtimes: map[string]connectedRuntime{}, cgroupV2: o.Keeper.Tree().Version == cgroup.V2,
	}
	n.checkpoint = record.NewCheckpoint(o.Checkpoint, &n.mu, o.Log)
	c := &Conductor{
		node: n, keeper: o.Keeper, log: o.Log, now: o.Now,
		formerAgent: o.FormerAgent, hasEarlierKey: o.HasEarlierKey, sweepEvery: cmp.Or(o.SweepInterval, sweepInterval),
		freeMemory: o.FreeMemory, confirmTimer: time.NewTimer(neverDue), listeners: listeners{nodeNow: o.NodeNow},
	}
	if o.ObserveOnly {
		c.observer = &observer{}
	}
	c.reports = &nodeview.Reporter{Source: c, Log: o.Log, Now: o.Now, Count: o.Recorder}
	c.cpuClasses, c.demotion = c.newCPUClasses(o), newDemoter(o.Demoter, o.Demotion)
	c.eventTimes.start(o.Now())
	c.keeper.SetClock(o.Now)
	c.keeper.SetConflictLimit(o.ConflictLimit)
	c.failClosed.Store(o.FailClosed)
	c.presence = facts.NewPresence(o.Keeper.Tree(), stateHolder{n}, o.Now, c.sweepEvery)
	c.facts = facts.New(facts.Options{
		Specs: o.Specs, Grants: o.Grants, HookServers: o.HookServers, Plugins: o.Plugins, Claims: o.Claims, DecidesAhead: o.DecidesAhead, AllowedCPUs: o.Keeper.ParentCPUs, HasInterface: o.HasInterface, NodeDevices: o.NodeDevices, FormerAgent: o.FormerAgent, Tree: o.Keeper.Tree(), Presence: c.presence, State: stateHolder{n},
		Signer: n.signer, Checkpoint: n.checkpoint, Log: o.Log,
		DecideAgain: func(pod *lifecycle.Pod) {
			_, _ = c.run(c.newWork(nil, &lifecycle.Event{Kind: lifecycle.Inform, Pod: pod}))
		},
		CountPanic: func(hook string) { o.Recorder.HookError(cmp.Or(hook, nodeview.AgentPanic)) },
	})
	return c
}

// Handle decides one event, and applies the values that must be in force before the answer. The only error that it
// returns is a *Rejection.
func (c *Conductor) Handle(ctx context.Context, from Carrier, ev lifecycle.Event) (Answer, error) {
	w := c.newWork(c.carrierInMode(from), &ev)
	c.trace(w, stepWait)
	got, done, err := c.facts.Gather(ctx, &w.capabilities, &ev)
	defer done()
	if err != nil { // a hook server refused the event before the conductor handled it
		err = &Rejection{Reason: err.Error()}
		c.reports.ReportRejection(&w.report, err)
		return c.observer.answerFor(Answer{Op: w.report.Op}, err)
	}
	compact(&ev)
	w.facts.CannotRefuse = ev.Kind == lifecycle.CreateContainer && !w.capabilities.CarriesRecords()
	w.report.Limit, w.report.Problems, w.facts.HookServers = got.TimeLimit, got.Problems, got.HookServers
	return c.observer.answerFor(c.run(w))
}

// Configure applies a new policy to all pods. The kernel gets the new values at once. The runtime gets them later, at
// the configured pace.
func (c *Conductor) Configure(p engine.Policy, t Tuning) { c.configure(engine.Facts{Policy: &p}, t) }

// ConfigureMachine is Configure for a machine on which CPUs went offline or came online. The machine is the result of
// topology.Machine.WithOnline.
func (c *Conductor) ConfigureMachine(m *topology.Machine, p engine.Policy, t Tuning) {
	c.configure(engine.Facts{Machine: m, Policy: &p}, t)
}

// configure applies the conductor's new settings, and then decides all pods again with the new facts.
func (c *Conductor) configure(f engine.Facts, t Tuning) {
	w := c.newWork(nil, &lifecycle.Event{Kind: lifecycle.Configure})
	w.facts, w.beforeGather = f, func() { c.applyTuning(t) }
	_, _ = c.run(w)
}

// withPlacementDisabled handles a Synchronize or Configure event. It returns, by id, the containers for which placement
// was disabled all the time from their creation until this event (lifecycle.RecordFields.NeverPlaced). In a
// Synchronize, a container without a record counts as such a container.
func (n *node) withPlacementDisabled(ev *lifecycle.Event, records map[string]engine.Record) map[string]bool {
	ids := map[string]bool{}
	for _, ctr := range ev.Containers { // of a Synchronize
		if ctr != nil {
			r, known := records[ctr.ID]
			ids[ctr.ID] = !known || r.NeverPlaced
		}
	}
	if ev.Kind == lifecycle.Configure {
		for _, id := range n.state.Containers() {
			ids[id] = n.state.Container(id).NeverPlaced
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

// Checkpoint returns the state that neither the runtime nor the kernel stores, so that the agent can save it.
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

// Attached registers a connected runtime. From now on the agent updates the values that the runtime stores for
// containers. Attached returns when the decisions of the runtime's Synchronize are in the kernel.
func (c *Conductor) Attached(from Carrier, r Runtime) {
	c.Flush()
	c.node.mu.Lock()
	c.node.runtimes[from.Name()] = connectedRuntime{c.carrierInMode(from), r}
	c.node.queue.Due.Reset(0)
	c.node.mu.Unlock()
	c.log.Info("the agent now updates the resources that the runtime stores for containers", logkey.Mode, from.Name(), logkey.Runtime, r.About())
}

// anyConnected returns a connected runtime; the zero value if there is none.
func (n *node) anyConnected() connectedRuntime {
	for _, rt := range n.runtimes {
		return rt
	}
	return connectedRuntime{}
}

// Detached unregisters a runtime that has disconnected. err is nil at an ordinary stop. The decided values stay in
// force.
func (c *Conductor) Detached(from Carrier, err error) {
	c.node.mu.Lock()
	delete(c.node.runtimes, from.Name())
	c.node.mu.Unlock()
	if err == nil {
		c.log.Info("the connection to the runtime has ended", logkey.Mode, from.Name())
		return
	}
	c.log.Warn("the connection to the runtime has ended with an error", logkey.Mode, from.Name(), logkey.Err, err)
}

var _ Handler = (*Conductor)(nil)
