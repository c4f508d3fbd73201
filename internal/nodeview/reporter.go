package nodeview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// Reporter writes events to the journal and the log, and counts them for the metrics.
type Reporter struct {
	Source
	Log     *slog.Logger
	Now     func() time.Time
	Count   Recorder // counts for the metrics
	Journal Journal

	logged               loggedProblems
	foreignRecordLogged  time.Time // when the log last named a container with a record of another agent
	missingCgroupsLogged time.Time // when the log last named containers without a cgroup; zero if there are none
}

// EventReport is an event with its plan and its results, as Reporter reports them.
type EventReport struct {
	Op         logkey.ID // the number of the event
	Event      *lifecycle.Event
	From       string              // the attachment that reported the event; "" for none
	Plan       *engine.Plan        // nil if nothing was decided
	Problems   []lifecycle.Problem // in addition to those of the plan
	Written    []keeper.Outcome    // the results of kernel writes
	DecideTime time.Duration       // the part of Duration for the decision
	Duration   time.Duration       // the whole time, until the answer
	Limit      time.Duration       // how long the runtime waits for the answer; 0 if that is unknown
	Repeated   bool                // a creation of a container with a record, so the agent has decided it before
}

// ReportRejection reports an event that the agent refused. err is the reason.
func (r *Reporter) ReportRejection(d *EventReport, err error) {
	r.addToJournal(d, err.Error())
	r.Count.Refused(refusedRequest)
	r.Log.Warn("the agent refused a request of the runtime", append(d.About(), logkey.Err, err)...)
}

// addToJournal adds an event to the journal. rejected is the reason why the agent refused it; "" if it did not.
func (r *Reporter) addToJournal(d *EventReport, rejected string) (e api.Event) {
	r.View(func(v *View) {
		e = v.journalEntry(d.Event, d.Plan, d.Problems)
		e.Op, e.Time, e.From, e.DecidedBefore = d.Op.String(), r.Now(), cmp.Or(d.From, "configuration"), d.Repeated
		e.Took, e.Rejected = d.Duration, rejected
		e.Unaligned = rejected != "" && d.Plan != nil && d.Plan.RefusedAsUnaligned
		r.Journal.Add(e)
	})
	return e
}

// Report reports an event that the agent did not refuse.
func (r *Reporter) Report(d *EventReport) {
	if d.Limit > 0 && d.Duration > d.Limit {
		d.Problems = append(d.Problems, lateAnswer(d))
	}
	e := r.addToJournal(d, "")
	r.Count.Event(d.Event.Kind, e.Took, d.DecideTime)
	for _, p := range e.Problems {
		r.countProblem(d.Event.Kind, p)
		if !r.logged.markIfNew(d.Event, p) {
			continue
		}
		r.Log.Warn("the agent found a problem when it handled an event", append(d.About(), logkey.Kind, p.Kind(), logkey.Key, p.Key, logkey.Value, p.Value, logkey.Reason, p.Sentence())...)
	}
	r.logged.forget(d.Event)
	r.logKernelRefusals(d)
	if len(e.Values)+len(e.Changed) == 0 || !r.Log.Enabled(context.Background(), slog.LevelInfo) {
		return // a runtime waits, so the code below must not run without need
	}
	out := d.About()
	for _, v := range e.Values {
		if v.Field == lifecycle.CPUSetCPUs.String() {
			out = append(out, logkey.CPUs, v.Value)
		}
	}
	r.Log.Info("the agent decided about an event", append(out, logkey.Values, len(e.Values), logkey.Changed, e.Changed)...)
}

// logKernelRefusals logs values that the kernel refused, at most lifecycle.MaxProblems for each
// pod. The status has all of these values.
func (r *Reporter) logKernelRefusals(d *EventReport) {
	logged := map[string]int{}
	for _, o := range d.Written {
		if o.State != keeper.Refused {
			continue
		}
		if o.RuntimeOnly() { // no warning: the agent sends the value to the runtime, and status shows the result
			r.Log.Debug("the kernel refused a value, so the agent sends it to the runtime", append(r.OwnerAttrs(o.Target.Owner), logkey.Op, d.Op, logkey.Field, o.Value.Field.String(), logkey.Err, o.Err)...)
			continue
		}
		pod := o.Target.Owner
		r.View(func(v *View) {
			if ctr := v.State.Container(pod); ctr != nil {
				pod = ctr.PodID
			}
		})
		if logged[pod]++; logged[pod] <= lifecycle.MaxProblems {
			r.Log.Warn("the kernel refused a value", append(r.OwnerAttrs(o.Target.Owner), logkey.Op, d.Op,
				logkey.Field, o.Value.Field.String(), logkey.Err, o.Err)...)
		}
	}
	for _, pod := range slices.Sorted(maps.Keys(logged)) {
		if more := logged[pod] - lifecycle.MaxProblems; more > 0 {
			r.Log.Warn("the kernel refused more values of a pod; trimtab explain shows them", append(r.OwnerAttrs(pod), logkey.Op, d.Op, logkey.Values, more)...)
		}
	}
}

// countProblem counts one problem of an event. Starts of containers are not counted, because their problems were counted
// at the creation.
func (r *Reporter) countProblem(kind lifecycle.Kind, p lifecycle.Problem) {
	switch {
	case p.Warning || kind == lifecycle.StartContainer:
	case p.Key == ConflictKey:
		r.Count.Refused(failedCreation)
	case p.Unserved:
		r.Count.Refused(refusedUnserved)
	case p.Hook != "":
		r.Count.HookError(p.Hook)
	case p.Rule != "":
		r.Count.Refused(refusedAuthorization)
	case kind == lifecycle.RunPodSandbox || p.Key == intent.RecordKey:
		r.Count.Refused(refusedAnnotation)
	default:
		r.Count.Refused(refusedPlacement)
	}
}

// reminderInterval is how often the log repeats an ongoing fault of the node.
const reminderInterval = 5 * time.Minute

// ReportForeignRecord logs a creation of a container that has a record of another agent. Either the other agent also
// answers the runtime, or the pod's author forged the record. The runtime refuses a container that both agents adjust.
// Calls of ReportForeignRecord must not be concurrent.
func (r *Reporter) ReportForeignRecord(d *EventReport, why string) {
	now := r.Now()
	if !r.foreignRecordLogged.IsZero() && now.Sub(r.foreignRecordLogged) < reminderInterval {
		return
	}
	r.foreignRecordLogged = now
	r.Log.Error("a new container has a record that this agent did not write: another agent is attached to this runtime, or the record is forged; run one agent on a node",
		logkey.Op, d.Op, logkey.Pod, d.Event.Pod.Name, logkey.Namespace, d.Event.Pod.Namespace, logkey.Container, d.Event.Container.Name, logkey.Reason, why)
}

// ReportMissingCgroups logs that containers run without a cgroup, and later that all have one again. Calls of
// ReportMissingCgroups must not be concurrent.
func (r *Reporter) ReportMissingCgroups() {
	var names []string
	r.View(func(v *View) { names = v.withoutCgroup(maxWithoutCgroup) })
	now := r.Now()
	switch first := r.missingCgroupsLogged.IsZero(); {
	case len(names) == 0 && !first:
		r.missingCgroupsLogged = time.Time{}
		r.Log.Info("every running container has a cgroup again")
	case len(names) > 0 && (first || now.Sub(r.missingCgroupsLogged) >= reminderInterval):
		r.missingCgroupsLogged = now
		r.Log.Error("running containers have no cgroup in the tree at cgroup.root: none of their values is in force; check cgroup.root", logkey.Container, strings.Join(names, ", "))
	}
}

// ReportDifferences adds to the journal, in mode observe, how a container or pod differs from the decisions. If texts is
// nil, the container or pod no longer differs.
func (r *Reporter) ReportDifferences(owner string, texts []string) {
	if texts == nil {
		texts = []string{"the values on the node no longer differ from the decided values"}
	}
	r.View(func(v *View) {
		e := api.Event{Kind: "Observe", Time: r.Now(), From: "observe", Changed: texts}
		p := v.State.Pod(owner)
		if ctr := v.State.Container(owner); ctr != nil {
			e.Container, p = ctr.Name, v.State.Pod(ctr.PodID)
		}
		if p != nil {
			e.Pod, e.PodUID = p.FullName(), p.Pod.UID
			r.Journal.Add(e)
		}
	})
}

// ReportRepair logs the result of repairing a value that another program had changed.
func (r *Reporter) ReportRepair(o keeper.Outcome) {
	about := append(r.OwnerAttrs(o.Target.Owner), logkey.Field, o.Value.Setting(), logkey.Value, o.Value.String())
	switch o.State {
	case keeper.Applied, keeper.Clipped:
		if errors.Is(o.Err, keeper.ErrContested) {
			r.Log.Error("another program keeps changing a container's list of CPUs or memory nodes; the agent repairs the list less often", append(about, logkey.Err, o.Err)...)
			return
		}
		r.Log.Warn("the agent restored a value that another program had changed", about...)
	case keeper.Ceded:
		r.Log.Warn("another program keeps changing a value that the agent writes, so the agent no longer writes it", append(about, logkey.Err, o.Err)...)
	case keeper.Refused:
		r.Log.Warn("the agent cannot restore a value that another program has changed", append(about, logkey.Err, o.Err)...)
	}
}

// OwnerAttrs returns log attributes for a container or sandbox id: the id, and the names of the pod and container if
// they are known.
func (r *Reporter) OwnerAttrs(owner string) []any {
	out := []any{logkey.Owner, owner}
	r.View(func(v *View) {
		p := v.State.Pod(owner)
		if ctr := v.State.Container(owner); ctr != nil {
			out = append(out, logkey.Container, ctr.Name)
			p = v.State.Pod(ctr.PodID)
		}
		if p != nil {
			out = append(out, logkey.Pod, p.Pod.Name, logkey.Namespace, p.Pod.Namespace)
		}
	})
	return out
}

// About returns the attributes of a log line that name the event.
func (d *EventReport) About() []any {
	out := []any{logkey.Op, d.Op, logkey.Event, d.Event.Kind.String()}
	if p := d.Event.Pod; p != nil {
		out = append(out, logkey.Pod, p.Name, logkey.Namespace, p.Namespace)
	}
	if ctr := d.Event.Container; ctr != nil {
		out = append(out, logkey.Container, ctr.Name)
	}
	return out
}

// lateAnswer returns the problem of an answer that came after the runtime's time limit.
func lateAnswer(d *EventReport) lifecycle.Problem {
	return lifecycle.Problem{
		Warning: true, Value: d.Event.Kind.String(),
		Reason: fmt.Sprintf("the answer took %v, but the runtime waits only %v", d.Duration.Round(time.Millisecond), d.Limit.Round(time.Millisecond)),
		Then:   "the runtime may have continued without the answer; the kernel gets the decided values when the container starts",
	}
}
