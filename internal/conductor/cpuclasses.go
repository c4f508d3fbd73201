package conductor

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/internal/cpuclass"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/topology"
)

// classCheck is how often the cpufreq and cpuidle files with a class are read, to find what other programs
// changed. inotify does not see writes to sysfs by another mount of it.
const classCheck = 5 * time.Second

// cpuClasses gives CPUs the classes that the state assigns to them. No event waits for its writes.
type cpuClasses struct {
	writer     *cpuclass.Writer // nil if the agent writes no CPU's files
	retryTimer *time.Timer
	log        *slog.Logger
	// wanted returns the classes that CPUs should have; known is false until the runtime's list of
	// containers was decided.
	wanted func() (want []cpuclass.WantedClass, known bool)
	// report is called with the reasons why CPUs do not have their class, when these change.
	report func(faults []lifecycle.Problem)

	checkAll atomic.Bool // the next run reads the files of all CPUs

	turn    sync.Mutex // a later decision is written later; guards the fields below
	checked time.Time  // when the files of all CPUs were read
	now     func() time.Time
	faults  string // the faults of the last report, as text
	repairs uint64 // how many repairs were logged
}

// newCPUClasses makes the cpuClasses of a conductor.
func (c *Conductor) newCPUClasses(o Options) *cpuClasses {
	k := &cpuClasses{writer: o.CPUClasses, retryTimer: time.NewTimer(classCheck), log: o.Log, now: o.Now, wanted: c.wantedClasses}
	k.report = func(faults []lifecycle.Problem) {
		c.reports.Journal.Add(api.Event{Time: c.now(), Kind: "CPUClasses", From: "kernel", Problems: faults})
	}
	return k
}

// wantedClasses returns the classes that CPUs should have now.
func (c *Conductor) wantedClasses() (want []cpuclass.WantedClass, known bool) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	return nodeview.WantedClasses(c.node.state), !c.synced.IsZero()
}

// update schedules a run after a decision that may have changed the CPU classes. It does not wait.
func (k *cpuClasses) update(ev lifecycle.Kind, s *engine.State) {
	all := ev == lifecycle.Configure || ev == lifecycle.Synchronize
	if all || s.PoolsResized() {
		k.checkAll.CompareAndSwap(false, all)
		k.retryTimer.Reset(answerDelay)
	}
}

// run writes the CPU classes. The timer calls it soon after a decision, and at intervals.
func (k *cpuClasses) run(context.Context) {
	k.turn.Lock()
	defer k.turn.Unlock()
	want, known := k.wanted()
	if k.writer == nil || !known {
		return
	}
	if now := k.now(); k.checkAll.Swap(false) || now.Sub(k.checked) >= classCheck {
		k.checked = now
		k.note(k.writer.Repair(want))
		return
	}
	k.note(k.writer.Apply(want))
}

// release restores the original values of all CPUs.
func (k *cpuClasses) release() (given int, failed []api.NotRestored) {
	if k.writer == nil {
		return 0, nil
	}
	k.turn.Lock()
	defer k.turn.Unlock()
	given, failed = ReleaseCPUClasses(k.writer)
	k.note(k.writer.Report())
	return given, failed
}

// ReleaseCPUClasses restores the original values of all CPUs. It returns how many files it restored, and the CPUs whose
// files it could not restore.
func ReleaseCPUClasses(w *cpuclass.Writer) (given int, failed []api.NotRestored) {
	given = w.OriginalCount()
	for _, f := range w.Repair(nil).Faults {
		failed = append(failed, api.NotRestored{Owner: "CPUs " + topology.FormatList(f.CPUs), Setting: "CPU class", Why: f.Reason})
	}
	left := w.OriginalCount()
	if left > 0 && len(failed) == 0 {
		failed = append(failed, api.NotRestored{Owner: "CPUs that are offline or gone", Setting: "CPU class", Why: fmt.Sprintf("%d files do not have their original values", left)})
	}
	return given - left, failed
}

// note logs and reports what changed since the last report.
func (k *cpuClasses) note(r cpuclass.Report) {
	if r.Repairs > k.repairs {
		k.log.Info("another program had changed the frequency or idle states of CPUs that have a CPU class; the agent set them again", logkey.Values, r.Repairs-k.repairs, logkey.Value, r.LastRepair)
		k.repairs = r.Repairs
	}
	var all []lifecycle.Problem
	var texts []string
	for _, f := range r.Faults {
		p := lifecycle.Problem{Key: "placement.balloons.cpuClasses", Value: f.Class, Reason: fmt.Sprintf("CPUs %s do not have this class: %s", topology.FormatList(f.CPUs), f.Reason)}
		all, texts = append(all, p), append(texts, p.Value+": "+p.Reason)
	}
	if text := strings.Join(texts, "\n"); text != k.faults {
		k.faults = text
		for _, p := range all {
			k.log.Warn("some CPUs do not have the frequency or idle states of their CPU class", logkey.Value, p.Value, logkey.Reason, p.Reason)
		}
		if len(all) > 0 {
			k.report(all)
		}
	}
}
