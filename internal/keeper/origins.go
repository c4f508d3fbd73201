package keeper

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/statefile"
)

// Journal stores lines for a later keeper. The keeper adds the line of a value before it writes the value to the
// kernel. A line need not be synced to disk: it must survive the process, but not a reboot, which removes all cgroups.
type Journal interface {
	// Append adds whole lines.
	Append(lines []byte) error
	// Replace replaces all lines.
	Replace(lines []byte) error
}

// Originals has the original texts of settings, from before the agent's first write, and stores them in a journal.
type Originals struct {
	journal Journal
	tree    *cgroup.Tree
	// flushMu is held during writes to the journal. It guards linesSinceReplace and journalRetry.
	flushMu sync.Mutex
	// linesSinceReplace counts the lines that were added since the journal was last replaced.
	linesSinceReplace int
	// journalRetry is the time at which a failed journal is written again.
	journalRetry statefile.Retry

	// mu is the keeper's lock. It guards the fields below, except seed and noEarlierJournal, which do not change
	// after Load.
	mu *sync.Mutex
	// table has the rows whose lines are in the journal.
	table *table
	// pendingLines are not in the journal yet. spareBuffer is the buffer of the lines before them, for reuse.
	pendingLines, spareBuffer []byte
	// seed is for the hashes that show whether a row's line has changed.
	seed maphash.Seed
	// remembered has settings without a row whose agent's text may still be in the kernel: settings that an
	// earlier keeper wrote, and settings of owners that were reported as ended. endedCount counts the settings of
	// the second kind since the last call of forgetRemovedCgroups.
	remembered map[fileKey]origin
	// rememberedCPUs has the CPUs of each remembered setting that made a container's cpuset partition.
	rememberedCPUs map[fileKey]cgroup.IDs
	endedCount     int
	journalErr     error // why the journal lacks some lines
	// noEarlierJournal means that no journal of an earlier keeper existed. originalsLost means that an earlier
	// keeper wrote to the kernel nevertheless. Texts in the kernel may then come from that keeper.
	noEarlierJournal, originalsLost bool
	// cgroupsAtLoss are the cgroups that existed when the keeper noticed that the originals are lost.
	cgroupsAtLoss map[string]bool
}

// history is what the keeper knows about the texts of a setting from before its last write.
type history struct {
	// LastText is the text in the file until the agent's text is written.
	LastText string `json:"was,omitempty"`
	// Original is the text from before the first write. The keeper does not read it if RuntimeMayHaveWritten is
	// set, because the runtime may have written the agent's value when it created the cgroup. Requested is the
	// kernel text of the requested value RequestedValue, and also serves as the original.
	Original              *string `json:"original,omitempty"`
	Requested             *string `json:"asked,omitempty"`
	RequestedValue        string  `json:"askedFor,omitempty"`
	RuntimeMayHaveWritten bool    `json:"carried,omitempty"`
	// Weight is the cpu.weight or cpu.shares that a row of cpu.idle saved, because the kernel
	// forgets it while a cgroup is idle.
	Weight string `json:"weight,omitempty"`
}

// origin is one line of the journal: a setting that the agent wrote, and the text to restore.
type origin struct {
	Owner  string          `json:"owner,omitempty"`
	Dir    string          `json:"dir"`
	Parent bool            `json:"parent,omitempty"`
	Field  lifecycle.Field `json:"field"`
	Key    string          `json:"key,omitempty"`
	// AgentText is the kernel text that the agent wrote or is about to write.
	AgentText string `json:"ours,omitempty"`
	history
	// TextRemoved means that the agent's text is no longer in the file.
	TextRemoved bool `json:"gone,omitempty"`
}

func (o *origin) key() fileKey { return fileKey{o.Dir, o.Field, o.Key} }

// extraLines is the number of lines by which a journal may exceed twice the number of settings, before it is replaced.
const extraLines = 1000

// Load makes the keeper store originals in a journal. It first reads earlier, the journal of an earlier keeper, which
// is nil if there was none. It skips lines that it cannot read, and its error has their number. Call it before the
// keeper is used.
func (s *Originals) Load(j Journal, earlier []byte) error {
	s.journal, s.noEarlierJournal = j, earlier == nil
	bad := 0
	for line := range bytes.Lines(earlier) { // of any length
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var o origin
		if err := json.Unmarshal(line, &o); err != nil || !cgroup.IsDir(o.Dir) {
			bad++
			continue
		}
		if o.TextRemoved {
			s.drop(o.key())
		} else {
			s.add(o)
		}
	}
	s.forgetRemovedCgroups()
	if bad > 0 {
		return fmt.Errorf("%d lines of original values cannot be read", bad)
	}
	return nil
}

// LoadFailed notes the reason why the journal could not be opened. The keeper writes the whole
// journal as soon as it can be opened.
func (s *Originals) LoadFailed(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journalErr = why
}

// forgetRemovedCgroups forgets remembered settings of removed cgroups.
func (s *Originals) forgetRemovedCgroups() {
	s.mu.Lock()
	gone := map[string]bool{}
	for p := range s.remembered {
		gone[p.dir] = false
	}
	s.endedCount = 0
	s.mu.Unlock()
	for dir := range gone {
		gone[dir] = s.tree.IsMissing(dir)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range slices.SortedFunc(maps.Keys(s.remembered), fileKey.compare) {
		if gone[p.dir] {
			s.forget(p) // the cgroup was removed, or does not exist yet, so it has none of the agent's texts
		}
	}
}

// JournalError returns the reason why the agent would not know all originals after a restart; nil if it would know
// them.
func (s *Originals) JournalError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal == nil {
		return errors.New("the journal could not be opened, so no originals are stored")
	}
	return s.journalErr
}

// NoteEarlierKeeper notes that an earlier keeper wrote to the kernel. It reports whether that
// keeper's originals are lost. If they are, texts in the cgroups that exist now do not count as
// originals.
func (s *Originals) NoteEarlierKeeper(there []string) (lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.originalsLost = s.originalsLost || s.journal != nil && s.noEarlierJournal
	if !s.originalsLost {
		return false
	}
	for _, dir := range there {
		s.cgroupsAtLoss[dir] = true
	}
	return true
}

// mayHaveUnjournaledWrite reports whether an earlier keeper, whose journal is lost, may have written the text of a row.
func (s *Originals) mayHaveUnjournaledWrite(r *row) bool {
	return s.originalsLost && s.cgroupsAtLoss[r.dir]
}

// CopiedSetting is a setting of a container that an earlier agent also sent to the runtime, so that
// the runtime's stored copy has it.
type CopiedSetting struct {
	Owner, Dir     string
	Field          lifecycle.Field
	RequestedValue string // "" if the request is not known
}

// Copied lists the settings of existing containers that an earlier keeper wrote and that are also in the runtime's
// stored copy.
func (s *Originals) Copied() (out []CopiedSetting) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.remembered))
	s.mu.Unlock()
	for _, o := range all {
		if !o.RuntimeMayHaveWritten || o.Parent || o.Key != "" || o.Requested != nil && *o.Requested == o.AgentText {
			continue
		}
		if _, err := s.tree.Read(o.Dir, o.Field, o.Key); err == nil {
			out = append(out, CopiedSetting{o.Owner, o.Dir, o.Field, o.RequestedValue})
		}
	}
	slices.SortFunc(out, func(a, b CopiedSetting) int { return cmp.Or(cmp.Compare(a.Dir, b.Dir), cmp.Compare(a.Field, b.Field)) })
	return out
}

// claim copies the history of a setting from an earlier keeper to its row.
func (s *Originals) claim(r *row) {
	o, known := s.remembered[r.fileKey]
	if !known {
		return
	}
	s.drop(r.fileKey)
	r.history = o.history
	r.history.LastText = ""
	r.journalHash = 1 // not 0, because the journal has a line of this setting
}

// remember keeps the history of a row that is dropped while its text stays in the kernel.
func (s *Originals) remember(r *row) {
	s.add(r.origin())
	s.endedCount++
}

// add adds a remembered setting.
func (s *Originals) add(o origin) {
	s.remembered[o.key()] = o
	if o.Key == cgroup.ExclusiveFile && o.Owner != ancestorOwner {
		s.rememberedCPUs[o.key()], _ = cgroup.ParseIDs(o.AgentText) // the set that the earlier keeper wrote
	}
}

// drop removes a remembered setting. It adds no line to the journal.
func (s *Originals) drop(p fileKey) {
	delete(s.remembered, p)
	delete(s.rememberedCPUs, p)
}

// forget drops the history of a setting, because its file has no text of the agent any more. It adds a line to the
// journal.
func (s *Originals) forget(p fileKey) {
	s.drop(p)
	if s.journal != nil {
		o := origin{Dir: p.dir, Field: p.field, Key: p.key, TextRemoved: true}
		s.pendingLines = append(o.appendJSON(s.pendingLines), '\n')
	}
}

// keep stores a text as the original of a row.
func (s *Originals) keep(r *row, text string) {
	r.history.Original = &text
	s.note(r)
}

// keepIfMissing stores a text as the original of a row, if the text is known and the row has no original yet.
func (s *Originals) keepIfMissing(r *row, text string) {
	if text != "" && r.history.Original == nil && !r.history.RuntimeMayHaveWritten {
		s.keep(r, text)
	}
}

// lineLength is the usual length of a line.
const lineLength = 320

// appendJSON appends the JSON of a line, as json.Marshal would. Lines are written while
// containers are created, and reflection would be most of the work.
func (o *origin) appendJSON(b []byte) []byte {
	at, field := len(b), o.Field.String()
	for _, m := range [...]struct {
		name string
		has  bool
		text *string // nil means true
	}{
		{"owner", o.Owner != "", &o.Owner}, {"dir", true, &o.Dir}, {"parent", o.Parent, nil}, {"field", true, &field},
		{"key", o.Key != "", &o.Key}, {"ours", o.AgentText != "", &o.AgentText}, {"was", o.LastText != "", &o.LastText},
		{"original", o.Original != nil, o.Original}, {"asked", o.Requested != nil, o.Requested}, {"askedFor", o.RequestedValue != "", &o.RequestedValue},
		{"carried", o.RuntimeMayHaveWritten, nil}, {"weight", o.Weight != "", &o.Weight}, {"gone", o.TextRemoved, nil},
	} {
		switch {
		case !m.has:
		case m.text != nil:
			b = appendText(b, m.name, *m.text)
		default:
			b = append(append(append(b, `,"`...), m.name...), `":true`...)
		}
	}
	b[at] = '{' // in place of the first comma
	return append(b, '}')
}

// appendText appends a member of an object. It uses the library for texts that need escapes.
func appendText(b []byte, name, text string) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			quoted, err := json.Marshal(text)
			if err != nil {
				quoted = []byte(`""`) // strings always marshal
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

// note adds a row's line to the pending lines of the journal, if the line has changed.
func (s *Originals) note(r *row) {
	if s.journal == nil {
		return
	}
	o := r.origin()
	before := len(s.pendingLines)
	lines := o.appendJSON(s.pendingLines)
	if n := maphash.Bytes(s.seed, lines[before:]); n != r.journalHash {
		r.journalHash = n
		s.pendingLines = append(lines, '\n')
	}
}

// origin returns the row's line of the journal.
func (r *row) origin() origin {
	return origin{
		Owner: r.target.Owner, Dir: r.dir, Parent: r.target.Parent, Field: r.field, Key: r.key,
		AgentText: cmp.Or(r.shownText, r.text), history: r.history,
	}
}

// noteTextRemoved adds a line to the journal, if the journal has a line of the row: the file has no text of the agent
// any more.
func (s *Originals) noteTextRemoved(r *row) {
	if r.journalHash != 0 {
		s.forget(r.fileKey)
	}
}

// flush writes the pending lines to the journal. It returns when these and all earlier lines are written, or when
// JournalError has the reason why they are not.
func (s *Originals) flush() {
	s.mu.Lock()
	many := s.endedCount > extraLines
	s.mu.Unlock()
	if many {
		s.forgetRemovedCgroups()
	}
	if s.journal != nil {
		s.flushMu.Lock()
		defer s.flushMu.Unlock()
		s.flushLocked(false)
	}
}

// flushLocked is flush for a caller that holds flushMu. A failed journal lacks lines, or has torn lines, so flushLocked
// then writes all lines again. It does so after a pause, or at once if now is set.
func (s *Originals) flushLocked(now bool) {
	s.mu.Lock()
	lines := s.pendingLines
	s.pendingLines, s.spareBuffer = s.spareBuffer[:0], nil
	s.linesSinceReplace += bytes.Count(lines, []byte{'\n'})
	whole := s.journalErr != nil || s.linesSinceReplace > 2*(len(s.table.rows)+len(s.remembered))+extraLines
	wait := s.journalErr != nil && !now && s.journalRetry.TooEarly(time.Now())
	s.mu.Unlock()
	var err error
	switch {
	case wait:
	case whole:
		err = s.replaceAll()
	case len(lines) > 0:
		if failed := s.journal.Append(lines); failed != nil {
			if err = s.replaceAll(); err != nil {
				err = errors.Join(failed, err)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !wait && (whole || len(lines) > 0) {
		s.journalErr = err
		s.journalRetry.SetResult(time.Now(), err)
	}
	if cap(lines) <= maxKeptBuffer {
		s.spareBuffer = lines
	}
}

// replaceAll writes the journal again. Lines that are added meanwhile come after it.
func (s *Originals) replaceAll() error {
	s.mu.Lock()
	all := s.allLocked()
	s.mu.Unlock()
	err := s.journal.Replace(all)
	if err == nil {
		s.linesSinceReplace = 0
	}
	return err
}

// maxFinalTries is how often SaveNow tries to write the missing lines.
const maxFinalTries = 3

// SaveNow writes the missing lines when the agent ends, without waiting for the pause after a failed try.
func (s *Originals) SaveNow() {
	if s.journal == nil {
		return
	}
	s.flushMu.Lock()
	defer s.flushMu.Unlock()
	for range maxFinalTries {
		s.flushLocked(true)
		if s.JournalError() == nil {
			return
		}
	}
}

// journalCheckInterval is the interval between checks of RetrySaving whether the journal has failed.
const journalCheckInterval = time.Second

// RetrySaving writes a failed journal again until ctx ends, with growing pauses after failures. It is for nodes without
// events, on which no other call writes the journal.
func (s *Originals) RetrySaving(ctx context.Context) error {
	tick := time.NewTicker(journalCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s.mu.Lock()
		failed := s.journal != nil && s.journalErr != nil
		s.mu.Unlock()
		if failed {
			s.flush()
		}
	}
}

// maxKeptBuffer is the largest capacity in bytes of a line buffer that is kept for reuse.
const maxKeptBuffer = 16 << 10

// allLocked returns the lines of all settings that have the agent's text now.
func (s *Originals) allLocked() []byte {
	lines := make([]byte, 0, lineLength*(len(s.table.rows)+len(s.remembered)))
	add := func(o origin) { lines = append(o.appendJSON(lines), '\n') }
	for _, r := range s.table.rows {
		if r.journalHash != 0 {
			add(r.origin())
		}
	}
	for _, o := range s.remembered {
		add(o)
	}
	return lines
}
