package cpuclass

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// execute writes a plan. If the kernel refuses a value of a class, execute restores the originals of all
// files of the unit, so that no class is applied in part.
func (w *Writer) execute(p *plan) {
	if len(p.settings) > 0 {
		err := w.writeAll(p)
		if err == nil {
			w.forgetRestoredFiles(p)
			return
		}
		p.fault = err.Error()
		w.refusals[p.key()] = refusal{fingerprint: p.fingerprint(), why: p.fault, until: w.options.Now().Add(retryPause)}
		p.settings, p.restore = nil, w.originalsExcept(&p.unit, nil)
	}
	var errs []error
	for _, s := range w.ordered(p.restore) {
		if err := w.write(p, s); err == nil {
			w.forgetRestored(s.file)
		} else if !errors.Is(err, fs.ErrNotExist) { // without the file, the CPU is offline or removed
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		p.fault = strings.TrimPrefix(p.fault+"; original values are not restored: "+err.Error(), "; ")
	}
}

// writeAll writes all files of a plan, and verifies them.
func (w *Writer) writeAll(p *plan) error {
	for _, s := range w.ordered(slices.Concat(p.settings, p.restore)) {
		if err := w.write(p, s); err != nil {
			return err
		}
	}
	return w.verify(p)
}

// forgetRestoredFiles forgets the originals of files that were restored. If the class sets the governor, it keeps the
// original of the energy preference, because the governor changes the preference.
func (w *Writer) forgetRestoredFiles(p *plan) {
	governs := slices.ContainsFunc(p.settings, func(s setting) bool { return path.Base(s.file) == governorFile })
	for _, s := range p.restore {
		if !governs || path.Base(s.file) != preferenceFile {
			w.forgetRestored(s.file)
		}
	}
}

// forgetRestored drops the stored original value of a file whose content is that value again.
func (w *Writer) forgetRestored(file string) {
	delete(w.originals, file)
	delete(w.lastWritten, file)
	w.unsaved = true
}

// ordered sorts the files of a unit in the order in which the kernel accepts them. The energy preference
// is written while the governor is not performance, which accepts no other preference. The highest
// frequency is written before the lowest, unless its new value is below the current lowest.
func (w *Writer) ordered(all []setting) []setting {
	text := map[string]string{}
	for _, s := range all {
		text[path.Base(s.file)] = s.text
	}
	order := []string{governorFile, preferenceFile, lowestFile, highestFile}
	if text[governorFile] == "performance" {
		order[0], order[1] = order[1], order[0]
	}
	for _, s := range all {
		if path.Base(s.file) != lowestFile {
			continue
		}
		has, _ := w.options.Files.Read(s.file) // if it fails, write returns the error
		present, _ := strconv.ParseUint(has, 10, 64)
		if next, err := strconv.ParseUint(text[highestFile], 10, 64); err == nil && next >= present {
			order[2], order[3] = order[3], order[2]
		}
	}
	rank := func(s setting) int {
		if i := slices.Index(order, path.Base(s.file)); i >= 0 {
			return i
		}
		return len(order) // idle states
	}
	return slices.SortedStableFunc(slices.Values(all), func(a, b setting) int { return rank(a) - rank(b) })
}

// write writes a text to a file, unless the file has that text. It reports a value that another program changed.
func (w *Writer) write(p *plan, s setting) error {
	has, err := w.options.Files.Read(s.file)
	if err != nil {
		return err
	}
	before := w.lastWritten[s.file]
	if has == s.text || before.text == s.text && has == before.kernelText {
		w.lastWritten[s.file] = writtenText{s.text, has}
		return nil
	}
	if before.text == s.text {
		p.repairs = append(p.repairs, fmt.Sprintf("%s had %q instead of %q", s.file, has, s.text))
	}
	if err := w.options.Files.Write(s.file, s.text); err != nil {
		return fmt.Errorf("write %q to %s: %w", s.text, s.file, err)
	}
	if has, err = w.options.Files.Read(s.file); err == nil {
		w.lastWritten[s.file] = writtenText{s.text, has}
	}
	return err
}

// verify returns an error if a file does not have the text that a class sets. It does not compare
// frequencies, because the kernel may limit them for a while, for example when the processor is hot.
func (w *Writer) verify(p *plan) error {
	for _, s := range p.settings {
		has, err := w.options.Files.Read(s.file)
		if err != nil {
			return err
		}
		if name := path.Base(s.file); has != s.text && name != lowestFile && name != highestFile {
			return fmt.Errorf("%s has %q after %q was written", s.file, has, s.text)
		}
		w.lastWritten[s.file] = writtenText{s.text, has}
	}
	return nil
}
