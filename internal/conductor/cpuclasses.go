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

// classCheckInterval is the interval between reads of the cpufreq and cpuidle files of CPUs with a class. The reads
// find changes by other programs, because inotify does not see writes through another mount of sysfs.
const classCheckInterval = 5 * time.Second

// cpuClasses gives CPUs the classes (frequency and idle states) that the state assigns to them. No event waits until
// the classes are written.
type cpuClasses struct {
	writer     *cpuclass.Writer // nil if the agent writes no cpufreq and cpuidle files
	retryTimer *time.Timer      // starts the next run
	log        *slog.Logger
	// wantedClasses returns the classes that CPUs should have. known is false before the first Synchronize, when the
	// agent does not know the node's containers yet.
	wantedClasses func() (want []cpuclass.WantedClass, known bool)
	// report gets the reasons why CPUs do not have their class, each time these reasons change.
	report func(faults []lifecycle.Problem)

	checkAll atomic.Bool // the next run reads the files of all CPUs

	// runMu is locked during a run, so that decisions are written in their order. It guards the fields below except
	// now.
	runMu          sync.Mutex
	lastFullCheck  time.Time // when the files of all CPUs were last read
	now            func() time.Time
	reportedFaults string // the faults of the last report, as text
	loggedRepairs  uint64 // the number of repairs of CPU files that were logged
}

// newCPUClasses makes the cpuClasses of a conductor.
func (c *Conductor) newCPUClasses(o Options) *cpuClasses {
	k := &cpuClasses{writer: o.CPUClasses, retryTimer: time.NewTimer(classCheckInterval), log: o.Log, now: o.Now, wantedClasses: c.wantedClasses}
	k.report = func(faults []lifecycle.Problem) {
		c.reports.Journal.Add(api.Event{Time: c.now(), Kind: "CPUClasses", From: "kernel", Problems: faults})
	}
	return k
}

// wantedClasses returns the classes that CPUs should have now. known is false before the first Synchronize.
func (c *Conductor) wantedClasses() (want []cpuclass.WantedClass, known bool) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	return nodeview.WantedClasses(c.node.state), !c.lastSync.IsZero()
}

// scheduleRun schedules a run after a decision that possibly changed the CPU classes. It does not wait.
func (k *cpuClasses) scheduleRun(ev lifecycle.Kind, s *engine.State) {
	all := ev == lifecycle.Configure || ev == lifecycle.Synchronize
	if all || s.PoolsResized() {
		k.checkAll.CompareAndSwap(false, all)
		k.retryTimer.Reset(answerDelay)
	}
}

// run writes the CPU classes. It is called soon after each decision that possibly changed the classes, and every
// classCheckInterval.
func (k *cpuClasses) run(context.Context) {
	k.runMu.Lock()
	defer k.runMu.Unlock()
	want, known := k.wantedClasses()
	if k.writer == nil || !known {
		return
	}
	if now := k.now(); k.checkAll.Swap(false) || now.Sub(k.lastFullCheck) >= classCheckInterval {
		k.lastFullCheck = now
		k.logChanges(k.writer.Repair(want))
		return
	}
	k.logChanges(k.writer.Apply(want))
}

// release does what ReleaseCPUClasses does, with the conductor's writer. If the writer is nil, it does nothing.
func (k *cpuClasses) release() (restored int, failed []api.NotRestored) {
	if k.writer == nil {
		return 0, nil
	}
	k.runMu.Lock()
	defer k.runMu.Unlock()
	restored, failed = ReleaseCPUClasses(k.writer)
	k.logChanges(k.writer.Report())
	return restored, failed
}

// ReleaseCPUClasses restores the original values in the cpufreq and cpuidle files of all CPUs. It returns the number of
// files that it restored, and the CPUs whose files it could not restore.
func ReleaseCPUClasses(w *cpuclass.Writer) (restored int, failed []api.NotRestored) {
	before := w.OriginalCount()
	for _, f := range w.Repair(nil).Faults {
		failed = append(failed, api.NotRestored{Owner: "CPUs " + topology.FormatList(f.CPUs), Setting: "CPU class", Why: f.Reason})
	}
	left := w.OriginalCount()
	if left > 0 && len(failed) == 0 {
		failed = append(failed, api.NotRestored{Owner: "CPUs that are offline or gone", Setting: "CPU class", Why: fmt.Sprintf("%d files do not have their original values", left)})
	}
	return before - left, failed
}

// logChanges logs the repairs since its last call. It logs and reports the faults if they differ from the last ones.
func (k *cpuClasses) logChanges(r cpuclass.Report) {
	if r.Repairs > k.loggedRepairs {
		k.log.Info("another program had changed the frequency or idle states of CPUs that have a CPU class; the agent set them again", logkey.Values, r.Repairs-k.loggedRepairs, logkey.Value, r.LastRepair)
		k.loggedRepairs = r.Repairs
	}
	var all []lifecycle.Problem
	var texts []string
	for _, f := range r.Faults {
		p := lifecycle.Problem{Key: "placement.balloons.cpuClasses", Value: f.Class, Reason: fmt.Sprintf("CPUs %s do not have this class: %s", topology.FormatList(f.CPUs), f.Reason)}
		all, texts = append(all, p), append(texts, p.Value+": "+p.Reason)
	}
	if text := strings.Join(texts, "\n"); text != k.reportedFaults {
		k.reportedFaults = text
		for _, p := range all {
			k.log.Warn("some CPUs do not have the frequency or idle states of their CPU class", logkey.Value, p.Value, logkey.Reason, p.Reason)
		}
		if len(all) > 0 {
			k.report(all)
		}
	}
}
