package cpuclass

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
)

// plan has the texts that the files of one unit should have. A unit is a group of CPUs with one class.
type plan struct {
	unit

	settings []setting // the values of the class
	restore  []setting // the originals of files that the class does not set
	repairs  []string  // a description of each value that another program had changed
}

// plan computes the texts that the files of a unit should have. For each file that will get a text of the class, it
// first records the present text as the original.
func (w *Writer) plan(u unit) plan {
	p := plan{unit: u}
	if p.class != nil && p.fault == "" {
		if err := w.computeSettings(&p); err != nil {
			p.fault, p.settings = err.Error(), nil
		}
	}
	p.restore = w.originalsExcept(&p.unit, p.settings)
	return p
}

// computeSettings computes the settings of a plan's class. It returns an error if the class cannot be applied.
func (w *Writer) computeSettings(p *plan) (err error) {
	if r := w.refusals[p.key()]; r.fingerprint == p.fingerprint() && w.options.Now().Before(r.until) {
		return errors.New(r.why)
	}
	if p.settings, err = settingsOf(w.options.Files, &p.unit); err != nil {
		return err
	}
	if err := w.checkLimits(p); err != nil {
		return err
	}
	for _, s := range p.settings {
		if err := w.recordOriginal(s.file); err != nil {
			return err
		}
		if path.Base(s.file) == governorFile { // the driver changes the energy preference when the governor changes
			if err := w.recordOriginal(path.Join(p.dir, preferenceFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// recordOriginal records the text of a file as its original. If the writer already has an original of the file, the
// original does not change.
func (w *Writer) recordOriginal(file string) error {
	if _, known := w.originals[file]; known {
		return nil
	}
	text, err := w.options.Files.Read(file)
	if err == nil {
		w.originals[file], w.unsaved = text, true
	}
	return err
}

// performanceGovernor returns the setting of the governor named performance. With this governor, the driver chooses the
// energy preference itself and accepts no other preference.
func (u *unit) performanceGovernor() setting {
	return setting{path.Join(u.dir, governorFile), "performance"}
}

// originalsExcept returns the originals of those files of a unit that the settings do not write.
func (w *Writer) originalsExcept(u *unit, settings []setting) (out []setting) {
	implied := slices.Contains(settings, u.performanceGovernor())
	for _, file := range slices.Sorted(maps.Keys(w.originals)) {
		if implied && path.Base(file) == preferenceFile {
			continue // the writer restores the preference together with the governor
		}
		if u.ownsFile(file) && !slices.ContainsFunc(settings, func(s setting) bool { return s.file == file }) {
			out = append(out, setting{file, w.originals[file]})
		}
	}
	return out
}

// checkLimits returns an error if the plan makes the lowest frequency higher than the highest frequency. If the class
// sets only one of the two, checkLimits uses the original or present value of the other frequency.
func (w *Writer) checkLimits(p *plan) error {
	limit := func(name string) (kHz uint64) {
		file := path.Join(p.dir, name)
		text, known := w.originals[file]
		if i := slices.IndexFunc(p.settings, func(s setting) bool { return s.file == file }); i >= 0 {
			text = p.settings[i].text
		} else if !known {
			text, _ = w.options.Files.Read(file) // a limit that the writer cannot read counts as 0
		}
		kHz, _ = strconv.ParseUint(text, 10, 64)
		return kHz
	}
	if p.class.MinFreq+p.class.MaxFreq == "" {
		return nil
	}
	if low, high := limit(minFreqFile), limit(maxFreqFile); low > high {
		return fmt.Errorf("the lowest frequency would be %d kHz, which is above the highest frequency, %d kHz", low, high)
	}
	return nil
}
