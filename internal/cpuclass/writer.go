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

// Options are the files and functions that a writer uses. Files and Now are required.
type Options struct {
	// Files are the node's cpufreq and cpuidle files.
	Files FS
	// Saved has the original values that an earlier agent stored with Save; nil for none. Boot identifies
	// this boot of the machine. The writer ignores values of another boot, because a boot resets the files.
	Saved []byte
	Boot  string
	// Save stores the original values. If it is nil, they are only in memory.
	Save func([]byte) error
	Now  func() time.Time
}

// Writer gives CPUs their classes. Its methods may be called by several goroutines concurrently.
type Writer struct {
	options Options

	filesMu  sync.Mutex // held while files are read and written; guards the fields from policies to refusals
	policies []policy   // the result of the last read; nil before the first read
	// originals are the texts that files had before the first write, by file. They are saved before that
	// write, so that a crash loses none.
	originals   map[string]string
	unsaved     bool                   // the originals changed since they were saved
	lastWritten map[string]writtenText // by file
	// appliedFingerprints has the fingerprint of each unit whose class, or whose original values, are in force.
	// kernelTexts has the texts of the files that the classes of these units set. refusals has the classes that the
	// kernel refused. The keys of all three are unit keys.
	appliedFingerprints map[int]string
	kernelTexts         map[int][]string
	refusals            map[int]refusal

	mu     sync.Mutex // guards the report
	report Report
}

// writtenText has the text that was written to a file, and the text that the file had afterwards. They
// differ if the kernel limits a frequency.
type writtenText struct{ text, kernelText string }

// refusal is a class that the kernel refused for a unit. why is the error of the write. The writer does not try the
// class again before until.
type refusal struct {
	fingerprint, why string
	until            time.Time
}

// New returns a writer. It returns an error if it cannot read Options.Saved. The writer then works without
// the saved values.
func New(o Options) (*Writer, error) {
	w := &Writer{options: o, originals: map[string]string{}, lastWritten: map[string]writtenText{}, appliedFingerprints: map[int]string{}, kernelTexts: map[int][]string{}, refusals: map[int]refusal{}}
	return w, w.loadOriginals(o.Saved)
}

// Apply gives CPUs their classes, and CPUs without a class their original values. It writes only to CPUs
// whose class changed or was not in force.
func (w *Writer) Apply(want []WantedClass) Report { return w.apply(want, false) }

// Repair is Apply for all CPUs. It reads the files of all CPUs that have a class, and writes the files again
// that another program changed.
func (w *Writer) Repair(want []WantedClass) Report { return w.apply(want, true) }

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
	saved := w.saveOriginals()
	var repairs []string
	for i := range plans {
		p := &plans[i]
		if saved != nil { // a write now could lose an original value
			p.fault = fmt.Sprintf("the original values cannot be saved: %v", saved)
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
	_ = w.saveOriginals() // restored originals are not stored any more; if it fails, the next call saves again
	return w.publish(want, w.inForce(units), faults, repairs)
}

// className returns the name of the unit's class; "" for none.
func (u *unit) className() string {
	if u.class == nil {
		return ""
	}
	return u.class.Name
}

// OriginalCount counts the files that do not have their original values.
func (w *Writer) OriginalCount() int {
	w.filesMu.Lock()
	defer w.filesMu.Unlock()
	return len(w.originals)
}
