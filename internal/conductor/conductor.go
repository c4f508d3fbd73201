package conductor

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/topology"
)

// Options are what a conductor is made of.
type Options struct {
	Machine *topology.Machine
	Policy  engine.Policy
	Keeper  *keeper.Keeper
	// Key signs the records stamped into containers.
	Key []byte
	Log *slog.Logger
	Now func() time.Time
	// Pace is the pause between two updates of the runtime's stored copies.
	Pace time.Duration
	// Ceded are fields that other plugins own: they are never claimed when a
	// container is created, but written when it starts, and that is reported.
	Ceded []lifecycle.Field
	// Checkpoint is what SaveCheckpoints saved last, or nothing.
	Checkpoint []byte
}

// Conductor is the one writer of the engine's state.
type Conductor struct {
	keeper *keeper.Keeper
	signer signer
	log    *slog.Logger
	now    func() time.Time

	// turn lets one event at a time be decided and applied: the runtime sends
	// them one after another, several runtimes might not.
	turn sync.Mutex

	mu       sync.Mutex // guards all below; never held across I/O
	state    *engine.State
	sent     map[string]deliveries // by container or sandbox id
	told     map[string]copyOf     // the runtime's stored copy, by container
	pace     time.Duration
	queue    updateQueue
	runtimes map[string]attached
	journal  journal
	ceded    map[lifecycle.Field]bool
	undone   map[placement.Key]int // creations in a row that failed after us
	late     checkpoint
	// recorded are containers whose pristine resources are known from a record,
	// by id.
	recorded map[string]bool
}

// attached is a connected runtime.
type attached struct {
	from    Carrier
	runtime Runtime
}

// New makes a conductor of a node on which nothing runs yet.
func New(o Options) *Conductor {
	late, err := newCheckpoint(o.Checkpoint)
	if err != nil {
		o.Log.Warn("the checkpoint is ignored; the runtime's records are used alone", "err", err)
	}
	return &Conductor{
		late:   late,
		ceded:  setOf(o.Ceded),
		undone: map[placement.Key]int{}, recorded: map[string]bool{},
		keeper: o.Keeper, signer: signer{key: o.Key}, log: o.Log, now: o.Now, pace: o.Pace,
		state:    engine.NewState(o.Machine, o.Policy),
		sent:     map[string]deliveries{},
		told:     map[string]copyOf{},
		queue:    newUpdateQueue(),
		runtimes: map[string]attached{},
		journal:  newJournal(),
	}
}

// work is one event on its way from decision to answer.
type work struct {
	from   Carrier
	ev     *lifecycle.Event
	plan   *engine.Plan
	answer Answer
	// items go to the kernel before the answer; notes are what the answer
	// carries and the kernel must agree with from then on.
	items, notes []keeper.Item
	settle       string // owner whose rows are written out
	forget       []string
	problems     []lifecycle.Problem
	wrote        map[string][]keeper.Outcome
}

// Handle decides one event and applies what must be applied before the answer.
// The only error it returns is a *Rejection.
func (c *Conductor) Handle(_ context.Context, from Carrier, ev lifecycle.Event) (Answer, error) {
	start := c.now()
	c.turn.Lock()
	defer c.turn.Unlock()
	w := &work{from: from, ev: &ev}
	if err := c.guard(w, engine.Facts{}); err != nil {
		return Answer{}, err
	}
	c.report(w, start)
	return w.answer, nil
}

// Configure puts a new policy in force for what runs: kernel first, the
// runtime's copies after it, paced.
func (c *Conductor) Configure(p engine.Policy, pace time.Duration, ceded []lifecycle.Field) {
	start := c.now()
	c.turn.Lock()
	defer c.turn.Unlock()
	c.mu.Lock()
	c.pace, c.ceded = pace, setOf(ceded)
	c.mu.Unlock()
	w := &work{ev: &lifecycle.Event{Kind: lifecycle.Configure}}
	if c.guard(w, engine.Facts{Policy: &p}) == nil {
		c.report(w, start)
	}
}

// guard runs one event through. A panic of ours costs the event its decision,
// never the pod its life: it is logged and answered with no change.
func (c *Conductor) guard(w *work, f engine.Facts) (err error) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("deciding an event failed", "event", w.ev.Kind.String(), "panic", r, "stack", string(debug.Stack()))
			w.answer, err = Answer{}, nil
		}
	}()
	c.gather(w, &f)
	if err := c.decide(w, f); err != nil {
		c.refused(w, err)
		return err
	}
	c.apply(w)
	c.confirm(w)
	return nil
}

// decide holds the lock: no I/O happens here.
func (c *Conductor) decide(w *work, f engine.Facts) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.plan = engine.Decide(c.state, w.ev, f)
	if w.plan.Reject != "" {
		return &Rejection{Reason: w.plan.Reject}
	}
	c.state.Commit(w.plan)
	for id := range f.Records {
		if c.state.Container(id) != nil {
			c.recorded[id] = true
		}
	}
	c.prepare(w)
	if w.plan.Moved() {
		c.noteGrants()
	}
	return nil
}

// apply writes to the kernel what cannot wait for the answer. What others lose
// is gone from their cpusets when it returns.
func (c *Conductor) apply(w *work) {
	for _, id := range w.forget {
		c.keeper.Forget(id)
	}
	w.wrote = map[string][]keeper.Outcome{}
	collect := func(all []keeper.Outcome) {
		for _, o := range all {
			w.wrote[o.Target.Owner] = append(w.wrote[o.Target.Owner], o)
		}
	}
	collect(c.keeper.Apply(w.items))
	c.keeper.Note(w.notes)
	if w.settle != "" {
		collect(c.keeper.Settle(w.settle))
	}
}

// Wants lists the kinds of events the active hooks need, and those that tell
// where everybody sits.
func (c *Conductor) Wants() []lifecycle.Kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	want := map[lifecycle.Kind]bool{lifecycle.Synchronize: true}
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

// Attached notes a connected runtime; its copies are updated from now on.
func (c *Conductor) Attached(from Carrier, r Runtime) {
	c.mu.Lock()
	c.runtimes[from.Name()] = attached{from, r}
	c.queue.wake()
	c.mu.Unlock()
	c.log.Info("attached", "mode", from.Name(), "runtime", r.About())
}

// Detached notes that a runtime is away. What was decided stays in force.
func (c *Conductor) Detached(from Carrier, err error) {
	c.mu.Lock()
	delete(c.runtimes, from.Name())
	c.mu.Unlock()
	c.log.Warn("detached", "mode", from.Name(), "err", err)
}

var _ Handler = (*Conductor)(nil)
var _ status.Source = (*Conductor)(nil)
