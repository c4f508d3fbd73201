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

// Journal stores lines for a later keeper. A line is in the journal before the kernel gets its
// value. A line need not be synced to disk: it survives the death of the process, and cgroups do
// not survive the kernel.
type Journal interface {
	// Append adds whole lines.
	Append(lines []byte) error
	// Replace replaces all lines.
	Replace(lines []byte) error
}

// Originals has the original texts of settings, from before the first write, as the keeper and
// its journal know them.
type Originals struct {
	journal Journal
	tree    *cgroup.Tree
	// flushing orders writes to the journal; it guards appended and retry.
	flushing sync.Mutex
	// appended counts lines since the journal was last replaced.
	appended int
	// retry is the time at which a failed journal is written again.
	retry statefile.Retry

	mu *sync.Mutex // the keeper's lock; it guards the fields below
	// table has the rows whose lines are in the journal.
	table *table
	// lines are waiting to be appended to the journal. written is the buffer of the last
	// appended lines, for reuse.
	lines, written []byte
	// seed is for the hashes that show whether a row's line has changed.
	seed maphash.Seed
	// remembered are settings that an earlier keeper wrote and that no row has claimed, and
	// settings whose owner is reported as ended. endedCount counts ended owners since the last
	// check of their cgroups.
	remembered map[fileKey]origin
	// partitions has the CPUs of each remembered setting that made a container's partition.
	partitions map[fileKey]cgroup.IDs
	endedCount int
	journalErr error // why the journal lacks some lines
	// empty reports that no journal of an earlier keeper existed. lost reports that an earlier
	// keeper nevertheless wrote to the kernel. Then texts in the kernel may come from that
	// keeper.
	empty, lost bool
	// existedAtLoss are the cgroups that existed when the keeper noticed the loss.
	existedAtLoss map[string]bool
}

// history has the known facts about a setting from before its last write.
type history struct {
	// LastText is the text in the file until the agent's text is written.
	LastText string `json:"was,omitempty"`
	// Original is the text from before the first write. It is not read if Carried, because the
	// runtime wrote the agent's value when it created the cgroup. Asked is the original from the
	// request AskedFor.
	Original *string `json:"original,omitempty"`
	Asked    *string `json:"asked,omitempty"`
	AskedFor string  `json:"askedFor,omitempty"`
	Carried  bool    `json:"carried,omitempty"`
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
	// Ours is the kernel text that was, or is about to be, written.
	Ours string `json:"ours,omitempty"`
	history
	// Gone reports that the agent's text is no longer in the file.
	Gone bool `json:"gone,omitempty"`
}

func (o *origin) key() fileKey { return fileKey{o.Dir, o.Field, o.Key} }

// extraLines is the number of lines by which a journal may exceed twice the number of rows.
const extraLines = 1000

// Load makes the keeper store originals in a journal. It first reads the journal of an earlier
// keeper, which is nil if there was none. It skips and reports lines that it cannot read. Call
// it before the keeper is used.
func (s *Originals) Load(j Journal, earlier []byte) error {
	s.journal, s.empty = j, earlier == nil
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
		if o.Gone {
			s.drop(o.key())
		} else {
			s.add(o)
		}
	}
	s.dropGone()
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

// dropGone forgets remembered settings of removed cgroups.
func (s *Originals) dropGone() {
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

// JournalError returns the reason why the agent would not know the originals after a restart;
// nil if it would know them.
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
	s.lost = s.lost || s.journal != nil && s.empty
	if !s.lost {
		return false
	}
	for _, dir := range there {
		s.existedAtLoss[dir] = true
	}
	return true
}

// mayHaveUnjournaledWrite reports whether an earlier keeper may have written the text in a cgroup without
// leaving a journal line.
func (s *Originals) mayHaveUnjournaledWrite(r *row) bool { return s.lost && s.existedAtLoss[r.dir] }

// CopiedSetting is a setting of a container that an earlier agent also sent to the runtime, so that
// the runtime's stored copy has it.
type CopiedSetting struct {
	Owner, Dir string
	Field      lifecycle.Field
	Was        string // the requested value; "" if that is not known
}

// Copied lists the settings of containers with a cgroup that an earlier keeper wrote and that
// the runtime has in its stored copy.
func (s *Originals) Copied() (out []CopiedSetting) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.remembered))
	s.mu.Unlock()
	for _, o := range all {
		if !o.Carried || o.Parent || o.Key != "" || o.Asked != nil && *o.Asked == o.Ours {
			continue
		}
		if _, err := s.tree.Read(o.Dir, o.Field, o.Key); err == nil {
			out = append(out, CopiedSetting{o.Owner, o.Dir, o.Field, o.AskedFor})
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
	r.journalHash = 1 // the journal has a line, so dropping the row needs another line
}

// remember keeps the history of a dropped row whose text stays in the kernel.
func (s *Originals) remember(r *row) {
	s.add(r.origin())
	s.endedCount++
}

// add adds a remembered setting.
func (s *Originals) add(o origin) {
	s.remembered[o.key()] = o
	if o.Key == cgroup.Exclusive && o.Owner != ancestorOwner {
		s.partitions[o.key()], _ = cgroup.ParseIDs(o.Ours) // the set that the earlier keeper wrote
	}
}

// drop removes a remembered setting.
func (s *Originals) drop(p fileKey) {
	delete(s.remembered, p)
	delete(s.partitions, p)
}

// forget drops the history of a setting, because its file has no text of the agent any more.
func (s *Originals) forget(p fileKey) {
	s.drop(p)
	if s.journal != nil {
		o := origin{Dir: p.dir, Field: p.field, Key: p.key, Gone: true}
		s.lines = append(o.appendJSON(s.lines), '\n')
	}
}

// keep stores the original text.
func (s *Originals) keep(r *row, text string) {
	r.history.Original = &text
	s.note(r)
}

// keepIfMissing stores the original text if the text is known and no original is stored yet.
func (s *Originals) keepIfMissing(r *row, text string) {
	if text != "" && r.history.Original == nil && !r.history.Carried {
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
		{"key", o.Key != "", &o.Key}, {"ours", o.Ours != "", &o.Ours}, {"was", o.LastText != "", &o.LastText},
		{"original", o.Original != nil, o.Original}, {"asked", o.Asked != nil, o.Asked}, {"askedFor", o.AskedFor != "", &o.AskedFor},
		{"carried", o.Carried, nil}, {"weight", o.Weight != "", &o.Weight}, {"gone", o.Gone, nil},
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

// note adds a row to the journal, if its line is not there yet.
func (s *Originals) note(r *row) {
	if s.journal == nil {
		return
	}
	o := r.origin()
	before := len(s.lines)
	lines := o.appendJSON(s.lines)
	if n := maphash.Bytes(s.seed, lines[before:]); n != r.journalHash {
		r.journalHash = n
		s.lines = append(lines, '\n')
	}
}

func (r *row) origin() origin {
	return origin{
		Owner: r.target.Owner, Dir: r.dir, Parent: r.target.Parent, Field: r.field, Key: r.key,
		Ours: cmp.Or(r.shownText, r.text), history: r.history,
	}
}

// noteGone adds a line to the journal: the file has no text of the agent any more.
func (s *Originals) noteGone(r *row) {
	if r.journalHash != 0 {
		s.forget(r.fileKey)
	}
}

// flush writes the pending lines to the journal. It returns when they and all earlier lines are
// written, or when JournalError has the reason why they are not.
func (s *Originals) flush() {
	s.mu.Lock()
	many := s.endedCount > extraLines
	s.mu.Unlock()
	if many {
		s.dropGone()
	}
	if s.journal != nil {
		s.flushing.Lock()
		defer s.flushing.Unlock()
		s.flushLocked(false)
	}
}

// flushLocked is flush, with flushing held. A failed journal lacks lines, or has torn lines, so
// the keeper first writes all lines again. It tries that after a pause, or at once if now is
// set.
func (s *Originals) flushLocked(now bool) {
	s.mu.Lock()
	lines := s.lines
	s.lines, s.written = s.written[:0], nil
	s.appended += bytes.Count(lines, []byte{'\n'})
	whole := s.journalErr != nil || s.appended > 2*(len(s.table.rows)+len(s.remembered))+extraLines
	wait := s.journalErr != nil && !now && s.retry.TooEarly(time.Now())
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
		s.retry.SetResult(time.Now(), err)
	}
	if cap(lines) <= maxKeptBuffer {
		s.written = lines
	}
}

// replaceAll writes the journal again. Lines that are added meanwhile come after it.
func (s *Originals) replaceAll() error {
	s.mu.Lock()
	all := s.allLocked()
	s.mu.Unlock()
	err := s.journal.Replace(all)
	if err == nil {
		s.appended = 0
	}
	return err
}

// maxFinalTries is how often a clean end tries to write the missing lines.
const maxFinalTries = 3

// SaveNow writes the missing lines at a clean end, without waiting for the pause after a failed
// try.
func (s *Originals) SaveNow() {
	if s.journal == nil {
		return
	}
	s.flushing.Lock()
	defer s.flushing.Unlock()
	for range maxFinalTries {
		s.flushLocked(true)
		if s.JournalError() == nil {
			return
		}
	}
}

// tryEvery is the interval between checks of a failed journal on a node without events.
const tryEvery = time.Second

// RetrySaving writes the missing lines until ctx ends, with growing pauses after failures.
func (s *Originals) RetrySaving(ctx context.Context) error {
	tick := time.NewTicker(tryEvery)
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

// maxKeptBuffer is the size of the largest line buffer that is kept.
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
