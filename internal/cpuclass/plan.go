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

// plan has the texts that the files of a unit should have.
type plan struct {
	unit

	settings []setting // the values of the class
	restore  []setting // the originals of files that the class does not set
	repairs  []string  // describes values that other programs had changed
}

// plan computes the texts of a unit's files. It keeps the original texts of the files that it will write.
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
		if err := w.keepOriginal(s.file); err != nil {
			return err
		}
		if path.Base(s.file) == governorFile { // the driver changes the energy preference when the governor changes
			if err := w.keepOriginal(path.Join(p.dir, preferenceFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// keepOriginal keeps the text of a file as its original, unless the writer already has an original of the file.
func (w *Writer) keepOriginal(file string) error {
	if _, known := w.originals[file]; known {
		return nil
	}
	text, err := w.options.Files.Read(file)
	if err == nil {
		w.originals[file], w.unsaved = text, true
	}
	return err
}

// performanceGovernor returns the setting of the governor performance. With that governor, the driver chooses the
// energy preference and accepts no other.
func (u *unit) performanceGovernor() setting {
	return setting{path.Join(u.dir, governorFile), "performance"}
}

// originalsExcept returns the originals of a unit's files that are not among the settings.
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

// checkLimits returns an error if the lowest frequency would be above the highest. A class may set only
// one of them.
func (w *Writer) checkLimits(p *plan) error {
	limit := func(name string) (kHz uint64) {
		file := path.Join(p.dir, name)
		text, known := w.originals[file]
		if i := slices.IndexFunc(p.settings, func(s setting) bool { return s.file == file }); i >= 0 {
			text = p.settings[i].text
		} else if !known {
			text, _ = w.options.Files.Read(file) // an unreadable limit counts as 0
		}
		kHz, _ = strconv.ParseUint(text, 10, 64)
		return kHz
	}
	if p.class.MinFreq+p.class.MaxFreq == "" {
		return nil
	}
	if low, high := limit(lowestFile), limit(highestFile); low > high {
		return fmt.Errorf("the lowest frequency would be %d kHz, which is above the highest frequency, %d kHz", low, high)
	}
	return nil
}
