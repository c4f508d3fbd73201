package conductor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// prepare turns a committed plan into what is answered and what is written. It
// runs under the lock and does no I/O.
func (c *Conductor) prepare(w *work) {
	switch w.ev.Kind {
	case lifecycle.Synchronize:
		c.checkpoint.Prune(w.ev)
	case lifecycle.PostCreateContainer:
		c.rename(w)
	}
	c.takeOut(w)
	for _, id := range w.plan.ChangedPods {
		c.preparePod(w, id)
	}
	told := map[string]*lifecycle.Container{}
	for _, ctr := range w.ev.Containers {
		if ctr != nil {
			told[ctr.ID] = ctr
		}
	}
	for _, id := range c.losersFirst(w.plan.Changed) {
		ctr := c.state.Container(id)
		if slices.Contains(w.plan.Reseated, id) {
			c.prepareFollowing(w, ctr)
			continue
		}
		switch w.ev.Kind {
		case lifecycle.CreateContainer:
			c.prepareCreate(w, ctr)
		case lifecycle.PostUpdateContainer, lifecycle.PostStartContainer:
			// Between our answer and the runtime's write others may have been
			// given CPUs: what was decided last counts.
			w.settle = id
			c.written(ctr)
		case lifecycle.UpdateContainer:
			if id == w.ev.Container.ID {
				c.prepareUpdate(w, ctr)
			} else {
				c.prepareFollowing(w, ctr)
			}
		case lifecycle.UpdatePodSandbox:
			c.prepareFollowing(w, ctr)
		case lifecycle.StartContainer:
			c.prepareStart(w, ctr)
		case lifecycle.Synchronize:
			c.noteUnplaced(w, ctr)
			c.prepareLive(w, ctr, told[id])
		case lifecycle.PostCreateContainer:
			c.createDone(ctr)
			if w.ev.Former != "" {
				c.prepareNamed(w, ctr)
			}
		case lifecycle.Configure:
			c.noteUnplaced(w, ctr)
			c.prepareLive(w, ctr, nil)
		case lifecycle.Inform:
			// It may have been created without a record, which a restart needs now.
			c.noteLate(ctr)
			c.track(id).recorded = true
			c.prepareLive(w, ctr, nil)
		}
	}
	for _, change := range w.plan.Seats {
		c.prepareSeat(w, change)
	}
	c.refreshCreated(w)
	c.giveAlong(w)
}

// takeOut forgets who is gone.
func (c *Conductor) takeOut(w *work) {
	for _, id := range w.plan.Gone {
		c.forget(w, id)
	}
	for _, id := range w.plan.GonePods {
		c.forget(w, id)
	}
	if p := w.plan.Pod; p != nil && p.Stopped {
		maps.DeleteFunc(c.undone, func(k placement.Key, _ int) bool { return k.PodUID == p.Pod.UID })
	}
	if len(w.plan.GonePods) > 0 { // others may have been swept with the event
		maps.DeleteFunc(c.undone, func(k placement.Key, _ int) bool { return len(c.state.PodsOf(k.PodUID)) == 0 })
	}
}

// losersFirst orders live containers so that those who share CPUs give them up
// before those who own them get them.
func (c *Conductor) losersFirst(ids []string) []string {
	var share, own []string
	for _, id := range ids {
		switch ctr := c.state.Container(id); {
		case ctr == nil || !ctr.Alive():
		case ctr.Seat.Pool == placement.Own:
			own = append(own, id)
		default:
			share = append(share, id)
		}
	}
	return append(share, own...)
}

func (c *Conductor) forget(w *work, id string) {
	w.forget = append(w.forget, id)
	c.queue.drop(id)
	if w.ev.Kind != lifecycle.Synchronize { // prune knows better of these
		c.checkpoint.Drop(id)
	}
	if c.state.Container(id) == nil && c.state.Pod(id) == nil {
		delete(c.tracks, id)
	}
}

// target names a container's cgroup.
func (c *Conductor) target(ctr *engine.Container) (keeper.Target, error) {
	parent := ""
	if p := c.state.Pod(ctr.PodID); p != nil {
		parent = p.Pod.CgroupParent
	}
	t := c.track(ctr.ID)
	if at := t.cgroup; at.dir != "" && at.parent == parent && at.path == ctr.CgroupsPath {
		return keeper.Target{Owner: ctr.ID, Dir: at.dir}, nil
	}
	dir, err := cgroup.Path(parent, ctr.CgroupsPath)
	if err == nil {
		t.cgroup = placed{parent: parent, path: ctr.CgroupsPath, dir: dir}
	}
	return keeper.Target{Owner: ctr.ID, Dir: dir}, err
}

func (c *Conductor) preparePod(w *work, id string) {
	p := c.state.Pod(id)
	if p == nil || len(p.Values) == 0 {
		if t := c.tracks[id]; t != nil {
			t.sent = nil
		}
		return
	}
	dir, err := cgroup.PodPath(p.Pod.CgroupParent)
	for _, v := range p.Values {
		if err != nil {
			c.track(id).lost(v, api.BadCgroup, err.Error())
			continue
		}
		w.items = append(w.items, podItem(p, dir, v))
	}
	if v, ok := weightAfterIdle(p); ok && err == nil {
		w.items = append(w.items, podItem(p, dir, v))
	}
}

// maxUndone is how many creations of one container may fail in a row before
// nothing contested is claimed for it any more: two plugins that claim one field
// fail every creation.
const maxUndone = 2

// contest says why a field is not claimed when a container is created, or "".
func (c *Conductor) contest(ctr *engine.Container, f lifecycle.Field) string {
	switch {
	case c.ceded[f]:
		return "ceded to other plugins by nri.cede"
	case c.undone[ctr.Key] >= maxUndone:
		return fmt.Sprintf("not claimed after %d failed creations", c.undone[ctr.Key])
	}
	return ""
}

// hands reports whether the answer to an event is to hold a field. Files of the
// unified hierarchy are not, as an OCI runtime fails a container for a file its
// kernel does not have, and in version 1 for any (runc 1.5: "cannot use unified on
// cgroup v1"): the keeper writes them when the cgroup exists, and reports what the
// kernel refuses. Where the cgroup comes with the first instruction only the runtime
// is in time, which in version 2 is asked. What the runtime does not take is not
// sent either.
func (c *Conductor) hands(to Carrier, call runtimes.Call, v lifecycle.Value) bool {
	kind := lifecycle.UpdateContainer
	if call == runtimes.Create {
		kind = lifecycle.CreateContainer
	}
	return (v.Field != lifecycle.Unified || holdsStart(to) && c.keeper.Version() == cgroup.V2) &&
		to.Carries(kind, v.Field) && refuses(to, call, v) == ""
}

// prepareCreate answers with what the attachment carries and nobody contests,
// and leaves the rest for the moment the cgroup exists.
func (c *Conductor) prepareCreate(w *work, ctr *engine.Container) {
	values := c.state.Values(ctr)
	t := c.track(ctr.ID)
	t.sent, t.stored = make(deliveries, 0, len(values)), copyOf{}
	if w.plan.Undone > 0 {
		c.undone[ctr.Key] += w.plan.Undone
	}
	t.createPending, t.passedOver = true, false
	target, err := c.target(ctr)
	if err != nil {
		t.noCgroupPath = true
	}
	for _, v := range values {
		contest := c.contest(ctr, v.Field)
		switch {
		case v.Gone && w.from.Carries(lifecycle.CreateContainer, v.Field) && !takesAway(w.from):
			t.lost(v, api.NotCarried, w.from.Name()+" cannot take away what the runtime was asked for")
			continue
		case contest == "" && c.hands(w.from, runtimes.Create, v):
			w.answer.Values = append(w.answer.Values, v)
			t.carried(v, w.from.Name()+" create")
			if inKernel(v.Field) {
				t.store(v.Field, v.String())
			}
			t.give(v)
		case !inKernel(v.Field) && contest != "":
			t.lost(v, api.Ceded, contest)
			continue
		case !inKernel(v.Field):
			t.lost(v, api.NotCarried, notCarried(w.from, v))
			continue
		case err != nil:
			t.lost(v, api.BadCgroup, err.Error())
			continue
		default:
			c.afterStart(w, ctr, v, contest)
		}
		if err == nil && inKernel(v.Field) {
			w.notes = append(w.notes, c.item(target, ctr, v))
		}
	}
	switch {
	case !stamps(w.from):
		c.existing(w, ctr, values)
	case len(values) > 0 || refused(ctr) || !ctr.Born.Empty(): // which stays so, also where nobody owns anything and so nothing is decided
		w.answer.Values = append(w.answer.Values, c.stamp(ctr))
		t.recorded = true
	}
}

// afterStart leaves a value of a container that is created to the kernel.
func (c *Conductor) afterStart(w *work, ctr *engine.Container, v lifecycle.Value, contest string) {
	why := refuses(w.from, runtimes.Create, v)
	if w.ev.Kind != lifecycle.CreateContainer {
		why = refuses(w.from, runtimes.Push, v)
	}
	if why != "" {
		c.keepAsked(ctr, v.Field)
	}
	c.track(ctr.ID).deliver(v, delivery{
		channel: "kernel", value: v.String(), missing: api.NotYet, alone: why,
		note: strings.TrimPrefix(contest+"; written when it starts", "; "),
	})
}

// refused reports whether a container did not get what it asked for.
func refused(ctr *engine.Container) bool {
	return ctr.Refused
}

// existing takes in a container whose creation is over when it is told of, and
// that carries no record: the checkpoint has it, and the runtime's copy is what
// the runtime tells.
func (c *Conductor) existing(w *work, ctr *engine.Container, values []lifecycle.Value) {
	c.noteLate(ctr)
	c.createDone(ctr)
	c.track(ctr.ID).stored = copyFrom(&w.ev.Container.Resources)
	for _, v := range values {
		if inKernel(v.Field) {
			c.enqueue(ctr, v)
		}
	}
}

// notCarried is the reason for people why a field is not in force.
func notCarried(from Carrier, v lifecycle.Value) string {
	if why := refuses(from, runtimes.Create, v); why != "" && from.Carries(lifecycle.CreateContainer, v.Field) {
		return why
	}
	why := fmt.Sprintf("%s cannot carry %s when a container is created", from.Name(), v.Field)
	if about := from.About(); about != "" {
		why += ": the runtime is " + about
	}
	return why
}

// rename carries what is known of a container's deliveries over to the id the
// runtime gave it.
func (c *Conductor) rename(w *work) {
	from, to := c.tracks[w.ev.Former], w.ev.Container.ID
	if w.plan.Container == nil || w.plan.Container.ID != to || from == nil {
		return
	}
	t := c.track(to)
	if from.sent != nil {
		t.sent = slices.Clone(from.sent)
	}
	if from.stored != nil {
		t.stored = from.stored
	}
	t.recorded = t.recorded || from.recorded
	if from.given != nil {
		t.given = from.given
	}
	if from.createPending {
		t.createPending, t.passedOver = true, from.passedOver
	}
}

// prepareNamed follows a container to its own id: its cgroup has a name now. A
// pool that moved while the runtime was creating it has its stored copy changed
// before it starts.
func (c *Conductor) prepareNamed(w *work, ctr *engine.Container) {
	t := c.track(ctr.ID)
	target, err := c.target(ctr)
	if err == nil {
		t.noCgroupPath = false
	}
	for _, v := range c.state.Values(ctr) {
		if !inKernel(v.Field) {
			continue
		}
		if err == nil {
			w.notes = append(w.notes, c.item(target, ctr, v))
		}
		d, _ := t.of(v)
		switch {
		case d.applied && d.value == v.String():
		case err != nil:
			t.lost(v, api.BadCgroup, err.Error())
		case c.contest(ctr, v.Field) == "" && c.hands(w.from, runtimes.Push, v):
			w.answer.Others = append(w.answer.Others, Settings{Container: ctr.ID, Values: []lifecycle.Value{v}})
			t.store(v.Field, v.String())
			c.noteLate(ctr)
			t.carried(v, w.from.Name()+" update")
		default:
			c.afterStart(w, ctr, v, "")
		}
	}
}

func (c *Conductor) stamp(ctr *engine.Container) lifecycle.Value {
	r := c.recordOf(ctr)
	text, whole := c.signer.Stamp(ctr.Key.PodUID, ctr.Name, r)
	if !whole {
		c.checkpoint.Note(ctr.ID, r)
	}
	return lifecycle.Value{
		Field: lifecycle.Annotation, Key: RecordKey, Text: text,
		Why: lifecycle.Reason{Hook: "record"},
	}
}

func (c *Conductor) recordOf(ctr *engine.Container) lifecycle.Record {
	return lifecycle.Record{
		Version: lifecycle.RecordVersion, Generation: c.state.Generation, CPUs: c.state.Machine.Format(ctr.Born),
		Given: c.track(ctr.ID).given, Kept: ctr.Kept,
	}
}

// noteUnplaced keeps whether a container got the CPUs it may have had since its
// creation: its record, which cannot be changed, does not know.
func (c *Conductor) noteUnplaced(w *work, ctr *engine.Container) {
	p := c.state.Pod(ctr.PodID)
	if w.wasUnplaced[ctr.ID] && !ctr.Unplaced && p != nil && p.Intent.CPUs.Said() {
		c.noteLate(ctr)
	}
}

// kernelOnly reports whether a value is kept from the runtime's copy: a
// container without CPUs of its own in that copy is narrowed in the kernel
// alone, where no update of the runtime undoes it. So the runtime's copy stays
// what was asked for, and a restart finds it so.
func (c *Conductor) kernelOnly(ctr *engine.Container, v lifecycle.Value) bool {
	return v.Field == lifecycle.CPUSetCPUs && v.Why.Hook != lifecycle.OutsideHook && ctr.Seat.Pool == placement.Rest &&
		ctr.Pristine.CPU.CPUs == "" && c.track(ctr.ID).stored[lifecycle.CPUSetCPUs] == ""
}

// staysOut reports whether a value is written to the kernel and kept from the
// runtime's copy for as long as nobody updates the container: it was computed
// from that copy, and without a record the copy alone tells a later start what
// was asked for.
func (c *Conductor) staysOut(ctr *engine.Container, v lifecycle.Value) bool {
	return c.kernelOnly(ctr, v) || v.Scaled && !c.track(ctr.ID).recorded
}

func (c *Conductor) prepareStart(w *work, ctr *engine.Container) {
	t := c.track(ctr.ID)
	delete(c.undone, ctr.Key)
	c.createDone(ctr)
	w.settle = ctr.ID
	w.answer.Owns = ctr.Seat.Pool == placement.Own
	if t.undescribed && ctr.Unread == "" {
		t.undescribed, t.noCgroupPath = false, false
		c.prepareLive(w, ctr, w.ev.Container)
		return
	}
	if t.noCgroupPath { // only now its cgroup is known
		t.noCgroupPath = false
		c.prepareLive(w, ctr, nil)
		return
	}
	if t.sent != nil {
		if holdsStart(w.from) {
			c.beforeStart(w, ctr)
		}
		return
	}
	// Created while we were away: what only a creation carries is lost.
	c.prepareLive(w, ctr, w.ev.Container)
}

// beforeStart has the runtime's copy changed before the start goes on, where
// the attachment can hold it: the cgroup comes with the start, and what was
// decided anew since the creation would otherwise be in force only after the
// first instruction.
func (c *Conductor) beforeStart(w *work, ctr *engine.Container) {
	t := c.track(ctr.ID)
	var changed []lifecycle.Value
	for _, v := range c.state.Values(ctr) {
		if isCopied(v.Field) && !t.stores(v) && !c.staysOut(ctr, v) &&
			c.hands(w.from, runtimes.Push, v) {
			changed = append(changed, v)
		}
	}
	if len(changed) == 0 {
		return
	}
	for _, v := range changed {
		t.store(v.Field, v.String())
		t.carried(v, w.from.Name()+" update")
	}
	w.answer.Others = append(w.answer.Others, Settings{Container: ctr.ID, Values: changed})
}

// prepareLive brings a container that already exists to what is decided now:
// the kernel at once, the runtime's copy later. told is the container as the
// runtime tells it, nil where it is known from before.
func (c *Conductor) prepareLive(w *work, ctr *engine.Container, told *lifecycle.Container) {
	t := c.track(ctr.ID)
	t.undescribed = t.undescribed || ctr.Unread != ""
	before, values := t.sent, c.state.Values(ctr)
	t.sent = make(deliveries, 0, len(values))
	if told != nil {
		t.stored = copyFrom(&told.Resources)
		if !stamps(w.from) {
			c.noteLate(ctr)
		}
		t.createPending, t.passedOver = false, false
	}
	if ctr.OursLate || ctr.Disowned || ctr.Resized {
		c.noteLate(ctr)
	}
	target, err := c.target(ctr)
	for _, v := range values {
		s := slotOf(v)
		if d, ok := before.of(s); ok && d.value == v.String() {
			t.deliver(v, d)
		}
		switch {
		case !inKernel(v.Field):
			c.fixed(w, ctr.ID, v, told)
			continue
		case err != nil:
			t.lost(v, api.BadCgroup, err.Error())
			continue
		}
		if told != nil && t.stores(v) {
			t.deliver(v, delivery{channel: "runtime", value: v.String(), applied: true, note: "given at an earlier time"})
		}
		it := c.item(target, ctr, v)
		it.Carried = it.Carried || told != nil && t.recorded
		c.aloneIfUnsaid(w, ctr, v)
		w.items = append(w.items, it)
		c.enqueue(ctr, v)
	}
}

// fixed judges a value that only the creation of a container can give it.
func (c *Conductor) fixed(w *work, id string, v lifecycle.Value, told *lifecycle.Container) {
	t := c.track(id)
	switch d, _ := t.of(v); {
	case d.applied:
	case told != nil && present(told, v), untold(v.Field) && t.given[v.Field] == v.Text:
		t.deliver(v, delivery{channel: "create", value: v.String(), applied: true, note: "given at an earlier time"})
	case w.from != nil && !c.hands(w.from, runtimes.Create, v):
		t.lost(v, api.NotCarried, notCarried(w.from, v))
	default:
		t.lost(v, api.CreateOnly, "only the creation of a container can carry it; it applies when the container is created anew")
	}
}

// prepareSeat expands a pool's change to its members: the kernel before the
// answer, and the runtime's copy of those that have no cgroup yet with it.
func (c *Conductor) prepareSeat(w *work, change engine.SeatChange) {
	w.items = slices.Grow(w.items, len(change.Members))
	if q, now := c.state.Displaced(c.state.Container(change.Members[0])); now && !c.state.DisplacedBy(change.Seat, change.Before) {
		q.Reason = fmt.Sprintf("%d containers: %s", len(change.Members), q.Reason)
		w.problems = append(w.problems, q)
	}
	for _, id := range change.Members {
		ctr := c.state.Container(id)
		v, ok := c.state.CPUSet(ctr)
		if !ok {
			continue
		}
		if change.Starved {
			w.problems = append(w.problems, lifecycle.Problem{
				Key: "cpuset.cpus", Value: ctr.Name, Reason: "every CPU it may use is owned by another", Then: "it is given CPUs outside",
			})
		}
		target, err := c.target(ctr)
		if err != nil {
			c.track(id).lost(v, api.BadCgroup, err.Error())
			continue
		}
		if !c.sendCreated(w, ctr, v) {
			w.items = append(w.items, c.item(target, ctr, v))
			c.enqueue(ctr, v)
			continue
		}
		w.items = append(w.items, c.item(target, ctr, v))
	}
}

// sendCreated changes the runtime's copy of a container that has no cgroup yet
// with the answer: its start would bring back what it lost.
func (c *Conductor) sendCreated(w *work, ctr *engine.Container, v lifecycle.Value) bool {
	if ctr.Life != lifecycle.StateCreated || w.from == nil || !tellsOthers(w) || !c.hands(w.from, runtimes.Push, v) {
		return false
	}
	w.answer.Others = append(w.answer.Others, Settings{Container: ctr.ID, Values: []lifecycle.Value{v}})
	c.noteLate(ctr)
	t := c.track(ctr.ID)
	t.store(v.Field, v.String())
	if t.createPending {
		// The runtime may not know it yet, and passes over what it does
		// not know: its copy is brought in line once it does.
		t.passedOver = true
		t.store(v.Field, unsure)
	}
	return true
}

// tellsOthers reports whether the answer to an event can change containers that
// it is not about. Where starts are held any can; of NRI's answers three have a
// place for it.
func tellsOthers(w *work) bool {
	switch w.ev.Kind {
	case lifecycle.CreateContainer, lifecycle.UpdateContainer, lifecycle.StopContainer:
		return true
	}
	return holdsStart(w.from)
}

// refreshCreated does the same for containers that lose nothing now and whose
// copy is still of an earlier time: what is given away may be in it.
func (c *Conductor) refreshCreated(w *work) {
	if w.from == nil || !tellsOthers(w) || !w.plan.Moved() {
		return
	}
	for _, id := range c.queue.ids {
		ctr := c.state.Container(id)
		if ctr == nil || ctr.Life != lifecycle.StateCreated {
			continue
		}
		if v, ok := c.state.CPUSet(ctr); ok && !c.track(id).stores(v) && !c.staysOut(ctr, v) {
			c.sendCreated(w, ctr, v)
		}
	}
}

// enqueue has the runtime's copy brought in line later, where it differs. That copy tells a restart what was asked for
// where there is no record: then the checkpoint does, which is saved long before the queue is quiet enough to be sent.
func (c *Conductor) enqueue(ctr *engine.Container, v lifecycle.Value) {
	if ctr.Unread != "" || !isCopied(v.Field) || c.track(ctr.ID).stores(v) || c.staysOut(ctr, v) {
		return
	}
	if _, late := c.checkpoint.Record(ctr.ID); !late && !c.track(ctr.ID).recorded {
		c.noteLate(ctr)
	}
	c.queue.add(ctr.ID)
}
