package cpuclass

import (
	"path"
	"slices"
)

// Report is the state of CPU classes after the last call of Apply or Repair.
type Report struct {
	// Wanted are the classes that CPUs should have. Faults are the reasons why some CPUs do not have their class.
	Wanted []WantedClass
	Faults []Fault
	// InForce are the classes that CPUs have, with the texts of their files.
	InForce []AppliedClass
	// Repairs counts how often the writer wrote a value again after another program had changed the value.
	// LastRepair describes the last of these changes.
	Repairs    uint64
	LastRepair string
}

// AppliedClass is a class that CPUs have. Idle CPUs that share a cpufreq policy with CPUs of a balloon have
// the class of the balloon.
type AppliedClass struct {
	Class string
	CPUs  []int
	// Files are the names and texts of the files that the class sets, such as "scaling_governor
	// performance". The kernel may show a lower frequency than the class sets.
	Files []string
}

// Fault is the reason why CPUs do not have their class. Class is "" for CPUs that should have their
// original values.
type Fault struct {
	Class  string
	CPUs   []int
	Reason string
}

// publish updates the report and returns it.
func (w *Writer) publish(want []WantedClass, inForce []AppliedClass, faults []Fault, repairs []string) Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Wanted, w.report.InForce, w.report.Faults = want, inForce, mergeFaults(faults)
	w.report.Repairs += uint64(len(repairs))
	if n := len(repairs); n > 0 {
		w.report.LastRepair = repairs[n-1]
	}
	return w.report
}

// Report returns the last report. It does not wait for writes.
func (w *Writer) Report() Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.report
}

// mergeFaults returns one fault for all CPUs with the same class and the same reason.
func mergeFaults(faults []Fault) (out []Fault) {
	for _, f := range faults {
		i := slices.IndexFunc(out, func(o Fault) bool { return o.Class == f.Class && o.Reason == f.Reason })
		if i < 0 {
			f.CPUs = slices.Clone(f.CPUs)
			out = append(out, f)
			continue
		}
		out[i].CPUs = append(out[i].CPUs, f.CPUs...)
	}
	return out
}

// inForce returns the classes that units have now. It merges units that have the same class and the same
// texts in their files.
func (w *Writer) inForce(units []unit) (out []AppliedClass) {
	for i := range units {
		u := &units[i]
		files, has := w.kernelTexts[u.key()]
		if !has || u.class == nil || w.appliedFingerprints[u.key()] != u.fingerprint() {
			continue
		}
		at := slices.IndexFunc(out, func(o AppliedClass) bool { return o.Class == u.className() && slices.Equal(o.Files, files) })
		if at < 0 {
			out = append(out, AppliedClass{Class: u.className(), CPUs: slices.Clone(u.cpus), Files: files})
			continue
		}
		out[at].CPUs = append(out[at].CPUs, u.cpus...)
	}
	return out
}

// kernelTextsOf returns the names of the files that a plan's class sets. Each name is followed by the text that the
// kernel showed after the write.
func (w *Writer) kernelTextsOf(p *plan) (files []string) {
	for _, s := range p.settings {
		name := path.Base(s.file)
		if name == "disable" { // the file is in the directory of an idle state
			state, err := w.options.Files.Read(path.Join(path.Dir(s.file), "name"))
			if err != nil {
				state = path.Base(path.Dir(s.file))
			}
			name = state + " disable"
		}
		// All CPUs of a policy have idle states of the same names, so each text occurs once per CPU, but should be
		// listed once.
		if text := name + " " + w.lastWritten[s.file].kernelText; !slices.Contains(files, text) {
			files = append(files, text)
		}
	}
	return files
}
