package conductor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/facts"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/record"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/topology"
)

// Options are what a conductor is made of.
type Options struct {
	Machine *topology.Machine
	Policy  engine.Policy
	Keeper  *keeper.Keeper
	// Key signs the records stamped into containers.
	Key []byte
	// Returning: the key is of an earlier agent, which may have written.
	Returning bool
	Log       *slog.Logger
	// Now is time.Now: its readings have a monotonic part, by which all is measured
	// that is waited for.
	Now func() time.Time
	Tuning
	// Checkpoint is what was saved last of one, or nothing.
	Checkpoint []byte
	// Recorder is told what happens; nil for none.
	Recorder nodeview.Recorder
	// Specs know what runtimes do not tell; nil for nothing.
	Specs facts.Specs
	// Grants know which devices the kubelet gave pods; nil for nothing.
	Grants facts.Grants
	// HookServers are policies that are no part of Trimtab; nil for none.
	HookServers facts.HookServers
	// Sweep is how often owners are looked at whose end nobody may have told of;
	// default: 5 s.
	Sweep time.Duration
}

// Tuning is what of a configuration concerns the conductor itself.
type Tuning struct {
	// Pace is the pause between two updates of the runtime's stored copies.
	Pace time.Duration
	// Ceded are fields that other plugins own: they are never claimed when a
	// container is created, but written when it starts, and that is reported.
	Ceded []lifecycle.Field
	// Fail refuses a container that could not be decided because of a fault of
	// ours; otherwise it is created without us.
	Fail bool
	// Fight says when a file that somebody else writes is left to them.
	Fight keeper.Fight
}

// Conductor is the one writer of the engine's state.
type Conductor struct {
	keeper  *keeper.Keeper
	signer  *record.Signer
	log     *slog.Logger
	now     func() time.Time
	reports *nodeview.Reporter
	facts   *facts.Gatherer
	fail    atomic.Bool
	ops     atomic.Uint32
	// began is when it was made: since and last are counted from then, as no step
	// of the wall clock changes how long ago something was.
	began time.Time
	// since is when the event under way took its turn, in nanoseconds; 0 for
	// none.
	since atomic.Int64
	// last is when the last event ended, in nanoseconds.
	last atomic.Int64

	// turn lets one event at a time be decided and applied: the runtime sends
	// them one after another, several runtimes might not.
	turn sync.Mutex

	// open is an event that was answered and is not concluded; guarded by turn.
	open *work
	// later is work that goes on after its event was answered; Run waits for it.
	later sync.WaitGroup

	mu         sync.Mutex // guards all below; never held across I/O
	state      *engine.State
	tracks     map[string]*track // by container or sandbox id
	pace       time.Duration
	queue      updateQueue
	runtimes   map[string]attached
	ceded      map[lifecycle.Field]bool
	undone     map[placement.Key]int // creations in a row that failed after us
	checkpoint *record.Checkpoint
	returning  bool      // Options.Returning
	looked     bool      // whether an earlier agent wrote was looked for
	synced     time.Time // the last Synchronize that was decided and applied
	sweepEvery time.Duration
	presence   presence
}

// attached is a connected runtime.
type attached struct {
	from    Carrier
	runtime Runtime
}

// New makes a conductor of a node on which nothing runs yet.
func New(o Options) *Conductor {
	if o.Recorder == nil {
		o.Recorder = nodeview.NoRecorder{}
	}
	c := &Conductor{
		ceded:  setOf(o.Ceded),
		undone: map[placement.Key]int{}, tracks: map[string]*track{},
		keeper: o.Keeper, signer: record.NewSigner(o.Key), log: o.Log, now: o.Now, pace: o.Pace,
		state:     engine.NewState(o.Machine, o.Policy),
		queue:     newUpdateQueue(o.Now),
		began:     o.Now(),
		runtimes:  map[string]attached{},
		returning: o.Returning,
		presence:  newPresence(), sweepEvery: cmp.Or(o.Sweep, sweepInterval),
	}
	c.reports = &nodeview.Reporter{Source: c, Log: o.Log, Now: o.Now, Count: o.Recorder}
	c.checkpoint = record.Open(o.Checkpoint, &c.mu, o.Log)
	c.last.Store(int64(-quiet))
	c.keeper.Watchful(o.Now)
	c.keeper.SetFight(o.Fight)
	c.fail.Store(o.Fail)
	c.facts = facts.New(facts.Options{
		Specs: o.Specs, Grants: o.Grants, HookServers: o.HookServers, Kernel: o.Keeper, Tree: o.Keeper.Tree(), Presence: kept{c}, State: kept{c},
		Signer: c.signer, Checkpoint: c.checkpoint, Renew: c.inform, Log: o.Log,
		Fault: func(hook string) { o.Recorder.HookError(cmp.Or(hook, nodeview.Ourselves)) },
	})
	return c
}

// work is one event on its way from decision to answer.
type work struct {
	op     logkey.ID
	from   Carrier
	ev     *lifecycle.Event
	can    Capabilities // of from; where that is nil, of a runtime that is connected
	plan   *engine.Plan
	answer Answer
	// items go to the kernel before the answer; notes are what the answer
	// carries and the kernel must agree with from then on.
	items, notes []keeper.Item
	settle       string // owner whose rows are written out
	// rest is what the answer to a creation does not wait for, since the kernel's partitions make it as good as done.
	rest        *keeper.Rest
	wasUnplaced map[string]bool // see unplaced
	forget      []string
	problems    []lifecycle.Problem
	wrote       []keeper.Outcome
	decided     time.Duration // what deciding took
	took        time.Duration // and all of it, until the answer
	limit       time.Duration // how long the runtime waits for it; 0 where it does not say
	alarm       *time.Timer   // has it concluded, where no other event does before
	failed      bool          // a panic of ours cost it something
	again       bool          // a creation that carries a record: it was decided before
}

// begin takes the turn for one event.
func (c *Conductor) begin(from Carrier, ev *lifecycle.Event) *work {
	w := &work{op: logkey.ID(c.ops.Add(1)), from: from, ev: ev}
	c.takeTurn()
	c.since.Store(max(1, int64(c.uptime())))
	return w
}

// uptime is how long there has been a conductor. Of two of them the difference is
// the time that passed between, whatever the wall clock did.
func (c *Conductor) uptime() time.Duration { return c.now().Sub(c.began) }

// takeTurn waits for the turn, and concludes what was answered before.
func (c *Conductor) takeTurn() {
	c.turn.Lock()
	if w := c.open; w != nil {
		c.open = nil
		if w.alarm.Stop() {
			c.later.Done()
		}
		c.conclude(w)
	}
}

func (c *Conductor) end() {
	c.last.Store(int64(c.uptime()))
	c.since.Store(0)
	c.turn.Unlock()
}

// Handle decides one event and applies what must be applied before the answer.
// The only error it returns is a *Rejection.
func (c *Conductor) Handle(ctx context.Context, from Carrier, ev lifecycle.Event) (Answer, error) {
	start := c.now()
	got, done, err := c.facts.Gather(ctx, attachmentOf(from), &ev)
	defer done()
	if err != nil {
		return c.refuse(from, &ev, err)
	}
	compact(&ev)
	w := c.begin(from, &ev)
	w.limit, w.problems = got.Limit, got.Problems
	err = c.guard(w, func() error { return c.plan(w, engine.Facts{Outside: got.Outside}) })
	w.answer.Op = w.op
	if err == nil && ev.Kind == lifecycle.Synchronize {
		// Runtimes drop a plugin that is slow here, and what runs does so with
		// the CPUs it has. The turn stays taken: no later event is decided
		// before this one is in the kernel.
		answer := w.answer
		c.later.Go(func() {
			func() {
				defer c.end()
				c.finish(w, start)
			}()
			// The runtime's whole list was read; little of it is kept.
			debug.FreeOSMemory()
		})
		return answer, nil
	}
	defer c.end()
	if err == nil && ev.Kind == lifecycle.CreateContainer {
		return c.answerFirst(w, start), nil
	}
	if err != nil {
		c.reports.Count.Event(ev.Kind, c.now().Sub(start), w.decided)
		return Answer{Op: w.op}, err
	}
	c.finish(w, start)
	return w.answer, nil
}

// answerDelay lets an answer be on its way before what remains of its event takes
// the processor.
const answerDelay = 300 * time.Microsecond

// answerFirst applies a creation and leaves what its pod need not wait for until
// after the answer: the keeper's notes, journal and log. They are made a moment
// later, or by the next event, which finds them.
func (c *Conductor) answerFirst(w *work, start time.Time) Answer {
	c.apply(w)
	w.took = c.now().Sub(start)
	c.open = w
	c.later.Add(1)
	w.alarm = time.AfterFunc(answerDelay, func() {
		defer c.later.Done()
		c.Settled()
	})
	return w.answer
}

// Settled returns when what was decided so far is in the kernel and reported.
func (c *Conductor) Settled() {
	c.takeTurn()
	c.turn.Unlock()
}

// Configure puts a new policy in force for what runs: kernel first, the
// runtime's copies after it, paced.
func (c *Conductor) Configure(p engine.Policy, t Tuning) { c.configure(engine.Facts{Policy: &p}, t) }

// Rehost is Configure on a machine some of whose CPUs went offline or came back,
// made by topology.Machine.WithOnline.
func (c *Conductor) Rehost(m *topology.Machine, p engine.Policy, t Tuning) {
	c.configure(engine.Facts{Machine: m, Policy: &p}, t)
}

func (c *Conductor) configure(f engine.Facts, t Tuning) {
	start := c.now()
	w := c.begin(nil, &lifecycle.Event{Kind: lifecycle.Configure})
	defer c.end()
	c.tune(t)
	if c.guard(w, func() error { return c.plan(w, f) }) == nil {
		c.finish(w, start)
	}
}

// guard runs a part of an event. A panic of ours costs the event its decision,
// never the pod its life: it is logged and answered with no change.
func (c *Conductor) guard(w *work, part func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("deciding an event failed", logkey.Op, w.op, logkey.Event, w.ev.Kind.String(),
				logkey.Panic, r, logkey.Stack, string(debug.Stack()))
			c.reports.Count.HookError(nodeview.Ourselves)
			w.failed = true
			w.answer, w.items, w.notes, w.settle, err = Answer{}, nil, nil, "", nil
			if c.fail.Load() && w.ev.Kind == lifecycle.CreateContainer {
				err = &Rejection{Reason: fmt.Sprintf("deciding failed: %v: failurePolicy.agent says that no container is created undecided", r)}
			}
		}
	}()
	return part()
}

// plan gathers and decides.
func (c *Conductor) plan(w *work, f engine.Facts) error {
	c.facts.Read(attachmentOf(w.from), w.ev, &f)
	if w.ev.Kind == lifecycle.CreateContainer && w.ev.Container != nil {
		_, w.again = f.Records[w.ev.Container.ID]
		if q, found := f.Distrusted[w.ev.Container.ID]; found {
			c.reports.Foreign(w.done(), q.Reason)
		}
	}
	err := c.decide(w, f)
	if err != nil {
		c.reports.Refused(w.done(), err)
	}
	return err
}

// finish applies what was decided, takes note of what became of it and reports.
func (c *Conductor) finish(w *work, start time.Time) {
	c.apply(w)
	w.took = c.now().Sub(start)
	c.conclude(w)
}

// apply writes to the kernel what cannot wait for the answer. What others lose
// is gone from their cpusets when it returns.
func (c *Conductor) apply(w *work) {
	_ = c.guard(w, func() error {
		for _, id := range w.forget {
			c.keeper.Forget(id)
		}
		switch {
		case len(w.items)+len(w.forget) == 0:
		case w.ev.Kind == lifecycle.CreateContainer:
			var wrote []keeper.Outcome
			wrote, w.rest = c.keeper.ApplyUrgent(w.items)
			w.wrote = append(w.wrote, wrote...)
		default:
			w.wrote = append(w.wrote, c.keeper.Apply(w.items)...)
		}
		if w.ev.Kind == lifecycle.StartContainer {
			// The last moment before its first instruction: what others were to give up for it and did not.
			w.wrote = append(w.wrote, c.keeper.SettleFailed()...)
		}
		if w.settle != "" {
			c.keeper.Note(w.notes)
			w.notes = nil
			w.wrote = append(w.wrote, c.keeper.Settle(w.settle)...)
		}
		return nil
	})
}

// conclude takes note of what became of an event, and reports it.
func (c *Conductor) conclude(w *work) {
	_ = c.guard(w, func() error {
		w.wrote = append(w.wrote, w.rest.Apply()...)
		return nil
	})
	_ = c.guard(w, func() error {
		c.keeper.Note(w.notes)
		c.confirm(w)
		return nil
	})
	if w.ev.Kind == lifecycle.Synchronize && !w.failed {
		c.giveUp(w)
		if err := c.keeper.Tidy(); err != nil {
			c.log.Warn("what an earlier run left stays", logkey.Err, err)
		}
		c.mu.Lock()
		c.synced = c.now()
		c.mu.Unlock()
	}
	_ = c.guard(w, func() error {
		c.reports.Done(w.done())
		return nil
	})
}

// decide holds the lock: no I/O happens here.
func (c *Conductor) decide(w *work, f engine.Facts) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	start := c.now()
	w.plan = engine.Decide(c.state, w.ev, f)
	w.decided = c.now().Sub(start)
	if w.plan.Reject != "" {
		return &Rejection{Reason: w.plan.Reject}
	}
	w.can = c.capabilities(w.from)
	w.wasUnplaced = c.unplaced(w.ev, f.Records)
	c.state.Commit(w.plan)
	for id := range f.Records {
		if c.state.Container(id) != nil && (w.from == nil || w.can.Stamps()) {
			t := c.track(id)
			t.recorded = true
			if given := f.Records[id].Given; given != nil {
				t.given = given
			}
		}
	}
	if w.ev.Kind == lifecycle.Synchronize {
		c.look(w.ev, f.Records)
	}
	c.prepare(w)
	if w.plan.Moved() {
		c.checkpoint.SetGrants(texts(c.state.Held(), c.state.Machine))
	}
	return nil
}

// unplaced are the containers of which no record tells whether they were
// refused CPUs, before a Synchronize or a changed configuration decides it.
func (c *Conductor) unplaced(ev *lifecycle.Event, records map[string]engine.Record) map[string]bool {
	if ev.Kind != lifecycle.Synchronize && ev.Kind != lifecycle.Configure {
		return nil
	}
	ids := map[string]bool{}
	for _, ctr := range ev.Containers {
		if ctr != nil {
			r, known := records[ctr.ID]
			ids[ctr.ID] = !known || r.Unplaced
		}
	}
	if ev.Kind == lifecycle.Configure {
		for _, id := range c.state.Containers() {
			ids[id] = c.state.Container(id).Unplaced
		}
	}
	return ids
}

// texts are sets of CPUs as kernel lists.
func texts(sets map[string]topology.Set, m *topology.Machine) map[string]string {
	out := make(map[string]string, len(sets))
	for key, cpus := range sets {
		out[key] = m.Format(cpus)
	}
	return out
}

// Checkpoint is what of the node only this process knows, to be saved.
func (c *Conductor) Checkpoint() *record.Checkpoint { return c.checkpoint }

// Wants lists the kinds of events the active hooks need, and those that tell
// where everybody sits.
func (c *Conductor) Wants() []lifecycle.Kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	want := map[lifecycle.Kind]bool{lifecycle.Synchronize: true}
	for _, k := range c.facts.Wants() {
		want[k] = true
	}
	for _, h := range c.state.Policy.Hooks {
		for _, k := range h.Info().Stages {
			want[k] = true
		}
	}
	var out []lifecycle.Kind
	for k := lifecycle.Synchronize; k < lifecycle.Configure; k++ {
		if want[k] {
			out = append(out, k)
		}
	}
	return out
}

// Attached notes a connected runtime; its copies are updated from now on. It
// returns when what its Synchronize led to is in the kernel.
func (c *Conductor) Attached(from Carrier, r Runtime) {
	c.Settled()
	c.mu.Lock()
	c.runtimes[from.Name()] = attached{from, r}
	c.queue.wake()
	c.mu.Unlock()
	c.log.Info("attached", logkey.Mode, from.Name(), logkey.Runtime, r.About())
}

// connected is a runtime that is connected, or nothing.
func (c *Conductor) connected() (rt attached) {
	for _, rt = range c.runtimes {
	}
	return rt
}

// Detached notes that a runtime is away. What was decided stays in force.
func (c *Conductor) Detached(from Carrier, err error) {
	c.mu.Lock()
	delete(c.runtimes, from.Name())
	c.mu.Unlock()
	c.log.Warn("detached", logkey.Mode, from.Name(), logkey.Err, err)
}

var _ Handler = (*Conductor)(nil)
