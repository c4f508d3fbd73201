package cpuclass

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// retryPause is the time after which the writer tries a class again that the kernel refused.
const retryPause = 2 * time.Minute

// Options are the options of a writer. Files and Now are required.
type Options struct {
	// Files are the node's cpufreq and cpuidle files.
	Files FS
	// Saved has the original values that an earlier run of the agent stored with Save; nil for none. Boot
	// identifies this boot of the machine. The writer ignores values of an earlier boot, because a boot resets the
	// files.
	Saved []byte
	Boot  string
	// Save stores the original values. If Save is nil, the writer has them only in memory.
	Save func([]byte) error
	Now  func() time.Time
}

// Writer gives CPUs their classes. Its methods may be called by several goroutines concurrently.
type Writer struct {
	options Options

	filesMu  sync.Mutex // held while files are read and written; guards the fields from policies to refusals
	policies []policy   // the cpufreq policies that the writer last read; nil before the first read
	// originals has the text of each file from before the first write, by file. The writer saves the originals
	// before it writes the file, so that no original is lost in a crash.
	originals   map[string]string
	unsaved     bool                   // the originals changed after the last save
	lastWritten map[string]writtenText // by file
	// These maps have the keys of units. appliedFingerprints has the fingerprint of each unit whose files are as they
	// should be: with the values of its class, or with the original values if the unit has no class. kernelTexts has
	// the texts of the files that the class of the unit sets. refusals has the classes that the kernel refused.
	appliedFingerprints map[int]string
	kernelTexts         map[int][]string
	refusals            map[int]refusal

	mu     sync.Mutex // guards the report
	report Report
}

// writtenText has the text that the writer wrote to a file, and the text that the file had afterwards
// (kernelText). The two differ if the kernel lowers a frequency.
type writtenText struct{ text, kernelText string }

// refusal is a class that the kernel refused for a unit. The field why is the error of the write. The writer does not
// write the class again before the time in the field until.
type refusal struct {
	fingerprint, why string
	until            time.Time
}

// New returns a writer. If New cannot read Options.Saved, it also returns an error, and the writer works
// without the saved values.
func New(o Options) (*Writer, error) {
	w := &Writer{options: o, originals: map[string]string{}, lastWritten: map[string]writtenText{}, appliedFingerprints: map[int]string{}, kernelTexts: map[int][]string{}, refusals: map[int]refusal{}}
	return w, w.loadOriginals(o.Saved)
}

// Apply gives CPUs their classes, and CPUs without a class their original values. It writes only to CPUs
// whose class changed, or whose values an earlier call could not write.
func (w *Writer) Apply(want []WantedClass) Report { return w.apply(want, false) }

// Repair does the same as Apply, but for all CPUs. It reads the files of all CPUs that have a class, and writes
// those files again that another program changed.
func (w *Writer) Repair(want []WantedClass) Report { return w.apply(want, true) }

// apply is Apply if all is false, and Repair if all is true.
func (w *Writer) apply(want []WantedClass, all bool) Report {
	w.filesMu.Lock()
	defer w.filesMu.Unlock()
	if len(want)+len(w.originals) == 0 {
		return w.publish(nil, nil, nil, nil)
	}
	if all || w.policies == nil {
		w.policies = policiesOf(w.options.Files)
	}
	var plans []plan
	var faults []Fault
	units := unitsOf(w.policies, want, slices.Collect(maps.Keys(w.originals)))
	for _, u := range units {
		if all || u.fault != "" || w.appliedFingerprints[u.key()] != u.fingerprint() {
			plans = append(plans, w.plan(u))
		}
	}
	saveErr := w.saveOriginals()
	var repairs []string
	for i := range plans {
		p := &plans[i]
		if saveErr != nil { // after a crash, the original values of written files would be lost
			p.fault = fmt.Sprintf("the agent writes no values of CPU classes, because it cannot save the original values: %v", saveErr)
		} else {
			w.execute(p)
		}
		repairs = append(repairs, p.repairs...)
		if p.fault != "" {
			faults = append(faults, Fault{Class: p.className(), CPUs: p.cpus, Reason: p.fault})
			delete(w.appliedFingerprints, p.key())
		} else {
			w.appliedFingerprints[p.key()], w.kernelTexts[p.key()] = p.fingerprint(), w.kernelTextsOf(p)
		}
	}
	_ = w.saveOriginals() // removes restored originals from the store; after an error, the next call saves again
	return w.publish(want, w.inForce(units), faults, repairs)
}

// className returns the name of the unit's class, or "" if the unit has no class.
func (u *unit) className() string {
	if u.class == nil {
		return ""
	}
	return u.class.Name
}

// OriginalCount returns the number of files whose original values the writer still has to restore.
func (w *Writer) OriginalCount() int {
	w.filesMu.Lock()
	defer w.filesMu.Unlock()
	return len(w.originals)
}
