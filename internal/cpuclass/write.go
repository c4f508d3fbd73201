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

// execute writes a plan. If the kernel refuses a value of the class, execute restores the originals of all
// files of the unit, so that the unit never has only some values of the class.
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
		} else if !errors.Is(err, fs.ErrNotExist) { // a CPU without the file is offline or removed
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		p.fault = strings.TrimPrefix(p.fault+"; the kernel does not have all original values again: "+err.Error(), "; ")
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

// forgetRestoredFiles drops the stored originals of files that were restored. If the class sets the governor, the
// original of the energy preference stays stored, because the driver changes the preference with the governor.
func (w *Writer) forgetRestoredFiles(p *plan) {
	governs := slices.ContainsFunc(p.settings, func(s setting) bool { return path.Base(s.file) == governorFile })
	for _, s := range p.restore {
		if !governs || path.Base(s.file) != preferenceFile {
			w.forgetRestored(s.file)
		}
	}
}

// forgetRestored drops the stored original of a file after the original was written to the file.
func (w *Writer) forgetRestored(file string) {
	delete(w.originals, file)
	delete(w.lastWritten, file)
	w.unsaved = true
}

// ordered sorts the settings of a unit in an order in which the kernel accepts the texts. With the governor
// performance, the kernel refuses to change the energy preference, so the preference comes before this governor. It
// comes after any other governor. If the new highest frequency is below the present lowest frequency, the lowest
// frequency comes before the highest. Otherwise the highest comes first.
func (w *Writer) ordered(all []setting) []setting {
	text := map[string]string{}
	for _, s := range all {
		text[path.Base(s.file)] = s.text
	}
	order := []string{governorFile, preferenceFile, minFreqFile, maxFreqFile}
	if text[governorFile] == "performance" {
		order[0], order[1] = order[1], order[0]
	}
	for _, s := range all {
		if path.Base(s.file) != minFreqFile {
			continue
		}
		has, _ := w.options.Files.Read(s.file) // if this read fails, the later read in write fails, too
		present, _ := strconv.ParseUint(has, 10, 64)
		if next, err := strconv.ParseUint(text[maxFreqFile], 10, 64); err == nil && next >= present {
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

// write writes a text to a file, if the file has a different text. If another program had changed the text, write adds
// this change to the plan's repairs.
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

// verify returns an error if a file does not have the text that the class sets. It does not compare
// frequencies, because the kernel may lower them for a while, for example when the processor is hot.
func (w *Writer) verify(p *plan) error {
	for _, s := range p.settings {
		has, err := w.options.Files.Read(s.file)
		if err != nil {
			return err
		}
		if name := path.Base(s.file); has != s.text && name != minFreqFile && name != maxFreqFile {
			return fmt.Errorf("%s has %q after the agent wrote %q", s.file, has, s.text)
		}
		w.lastWritten[s.file] = writtenText{s.text, has}
	}
	return nil
}
