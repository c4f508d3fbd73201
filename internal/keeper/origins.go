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

// Journal keeps lines for a later keeper. A line is in the journal before the
// kernel gets its value. It need not be on a disk: cgroups do not outlive the
// kernel, and what a dead process has written does.
type Journal interface {
	// Append adds whole lines.
	Append(lines []byte) error
	// Replace writes lines in place of all earlier ones.
	Replace(lines []byte) error
}

// Originals is what the keeper and its journal know of texts from before the first
// write.
type Originals struct {
	journal Journal
	tree    *cgroup.Tree
	// flushing orders writes to the journal; it guards appended and retry.
	flushing sync.Mutex
	// appended counts lines since the journal was last replaced.
	appended int
	// retry says when a failed journal is written again.
	retry statefile.Retry

	mu *sync.Mutex // the keeper's; it guards the rest
	// table has the rows whose lines the journal has.
	table *table
	// lines are to be appended to the journal. written is the buffer of the lines before
	// them, which the next ones use again.
	lines, written []byte
	// seed is for the hashes by which a row's line differs from its last one.
	seed maphash.Seed
	// remembered are settings that an earlier keeper wrote and that no row has
	// claimed, or whose owner is reported to have ended. parted counts the latter
	// since it was last checked which of them are.
	remembered map[fileKey]origin
	endedCount int
	journalErr error // why the journal lacks some lines
	// empty: no earlier keeper left a journal. lost: one wrote to the kernel all
	// the same, so texts found there may be ours.
	empty, lost bool
	// older are the cgroups that existed when the loss was noticed.
	older map[string]bool
}

// past is what is known of a setting from before its last write.
type history struct {
	// Was is the text that is there until ours is written.
	Was string `json:"was,omitempty"`
	// Original is the text from before the first write. It is not read if Carried:
	// then the runtime wrote our value, and nothing was there before. Asked is the
	// original as reported with the request AskedFor.
	Original *string `json:"original,omitempty"`
	Asked    *string `json:"asked,omitempty"`
	AskedFor string  `json:"askedFor,omitempty"`
	Carried  bool    `json:"carried,omitempty"`
	// Weight is the cpu.weight or cpu.shares that a row of cpu.idle saved: the
	// kernel forgets it while a cgroup is idle.
	Weight string `json:"weight,omitempty"`
}

// origin is one line of the journal: a setting of ours, and what to restore for it.
type origin struct {
	Owner  string          `json:"owner,omitempty"`
	Dir    string          `json:"dir"`
	Parent bool            `json:"parent,omitempty"`
	Field  lifecycle.Field `json:"field"`
	Key    string          `json:"key,omitempty"`
	// Ours is the kernel text that was, or is about to be, written.
	Ours string `json:"ours,omitempty"`
	history
	// Gone: nothing of ours is there any more.
	Gone bool `json:"gone,omitempty"`
}

func (o *origin) place() fileKey { return fileKey{o.Dir, o.Field, o.Key} }

// slack is how many lines more than twice its rows a journal may have.
const slack = 1000

// Keep makes the keeper remember originals over a restart. It first reads what an
// earlier keeper left in the journal, nil if there was none; it skips and reports
// lines that cannot be read. It is called before the keeper is used.
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
			delete(s.remembered, o.place())
		} else {
			s.remembered[o.place()] = o
		}
	}
	s.dropGone()
	if bad > 0 {
		return fmt.Errorf("%d lines of original values cannot be read", bad)
	}
	return nil
}

// KeepLater says why the journal could not be opened: it is written again once that
// is possible.
func (s *Originals) LoadFailed(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journalErr = why
}

// dropGone forgets what is remembered of removed cgroups.
func (s *Originals) dropGone() {
	s.mu.Lock()
	gone := map[string]bool{}
	for p := range s.remembered {
		gone[p.dir] = false
	}
	s.endedCount = 0
	s.mu.Unlock()
	for dir := range gone {
		gone[dir] = s.tree.Gone(dir)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range slices.SortedFunc(maps.Keys(s.remembered), fileKey.compare) {
		if gone[p.dir] {
			s.forget(p) // a container that has not started yet will have it
		}
	}
}

// Kept reports why the originals would not be known after a restart; nil if they
// would.
func (s *Originals) JournalError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal == nil {
		return errors.New("nothing is kept")
	}
	return s.journalErr
}

// Wrote tells the keeper that an earlier one has written. It reports whether the
// originals of that are lost: then texts found in present cgroups do not count as
// originals.
func (s *Originals) EarlierWrote(there []string) (lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = s.lost || s.journal != nil && s.empty
	if !s.lost {
		return false
	}
	for _, dir := range there {
		s.older[dir] = true
	}
	return true
}

// maybeOurs reports whether the text found in a cgroup may be ours, from an earlier
// keeper that left no line about it.
func (s *Originals) maybeOurs(r *row) bool { return s.lost && s.older[r.dir] }

// Copied is a setting of a container that the runtime got, too, and so has in its
// stored copy.
type Copied struct {
	Owner, Dir string
	Field      lifecycle.Field
	Was        string // the requested value; "" if that is not known
}

// Copied lists what an earlier keeper left in containers that still have a cgroup,
// if the runtime wrote it, too.
func (s *Originals) Copied() (out []Copied) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.remembered))
	s.mu.Unlock()
	for _, o := range all {
		if !o.Carried || o.Parent || o.Key != "" || o.Asked != nil && *o.Asked == o.Ours {
			continue
		}
		if _, err := s.tree.Read(o.Dir, o.Field, o.Key); err == nil {
			out = append(out, Copied{o.Owner, o.Dir, o.Field, o.AskedFor})
		}
	}
	slices.SortFunc(out, func(a, b Copied) int { return cmp.Or(cmp.Compare(a.Dir, b.Dir), cmp.Compare(a.Field, b.Field)) })
	return out
}

// claim copies to a row what an earlier keeper knew of its setting.
func (s *Originals) claim(r *row) {
	o, known := s.remembered[r.fileKey]
	if !known {
		return
	}
	delete(s.remembered, r.fileKey)
	r.history = o.history
	r.history.Was = ""
	r.noted = 1 // there is a line: when the row is dropped, another line must say so
}

// remember keeps what is known of a dropped row whose text stays in the kernel.
func (s *Originals) remember(r *row) {
	s.remembered[r.fileKey] = r.origin()
	s.endedCount++
}

// forget drops what is remembered of a setting: nothing of ours is left there.
func (s *Originals) forget(p fileKey) {
	delete(s.remembered, p)
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

// found stores the original text if it is known and was not stored before.
func (s *Originals) found(r *row, text string) {
	if text != "" && r.history.Original == nil && !r.history.Carried {
		s.keep(r, text)
	}
}

// lineLength is about the length of a line.
const lineLength = 320

// appendJSON appends what json.Marshal would make of a line. Lines are written
// while containers are created, and all of them again sometimes: reflection would
// be most of the work.
func (o *origin) appendJSON(b []byte) []byte {
	at, field := len(b), o.Field.String()
	for _, m := range [...]struct {
		name string
		has  bool
		text *string // nil if true
	}{
		{"owner", o.Owner != "", &o.Owner}, {"dir", true, &o.Dir}, {"parent", o.Parent, nil}, {"field", true, &field},
		{"key", o.Key != "", &o.Key}, {"ours", o.Ours != "", &o.Ours}, {"was", o.Was != "", &o.Was},
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

// appendText appends a member of an object. The library quotes texts that are not
// plain.
func appendText(b []byte, name, text string) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			quoted, err := json.Marshal(text)
			if err != nil {
				quoted = []byte(`""`) // texts always marshal
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

// note adds a row to the journal, if it has none yet.
func (s *Originals) note(r *row) {
	if s.journal == nil {
		return
	}
	o := r.origin()
	before := len(s.lines)
	lines := o.appendJSON(s.lines)
	if n := maphash.Bytes(s.seed, lines[before:]); n != r.noted {
		r.noted = n
		s.lines = append(lines, '\n')
	}
}

func (r *row) origin() origin {
	return origin{
		Owner: r.target.Owner, Dir: r.dir, Parent: r.target.Parent, Field: r.field, Key: r.key,
		Ours: cmp.Or(r.shown, r.want), history: r.history,
	}
}

// noteGone adds to the journal that nothing of ours is left there.
func (s *Originals) noteGone(r *row) {
	if r.noted != 0 {
		s.forget(r.fileKey)
	}
}

// flush writes the pending lines to the journal. It returns when they, and all
// earlier ones, are there, or when Kept says why not.
func (s *Originals) flush() {
	s.mu.Lock()
	many := s.endedCount > slack
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

// flushLocked is flush, with flushing held. A journal that failed lacks lines, or
// has torn ones: nothing is added to it until all lines are written again. That is
// tried after a pause, or at once if now is set.
func (s *Originals) flushLocked(now bool) {
	s.mu.Lock()
	lines := s.lines
	s.lines, s.written = s.written[:0], nil
	s.appended += bytes.Count(lines, []byte{'\n'})
	whole := s.journalErr != nil || s.appended > 2*(len(s.table.rows)+len(s.remembered))+slack
	wait := s.journalErr != nil && !now && s.retry.Resting(time.Now())
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
		s.retry.Note(time.Now(), err)
	}
	if cap(lines) <= maxRoom {
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

// lastTries is how often a clean end tries to write the missing lines.
const lastTries = 3

// KeepNow writes the missing lines at a clean end, whenever the last try was.
func (s *Originals) SaveNow() {
	if s.journal == nil {
		return
	}
	s.flushing.Lock()
	defer s.flushing.Unlock()
	for range lastTries {
		s.flushLocked(true)
		if s.JournalError() == nil {
			return
		}
	}
}

// tryEvery is how often a failed journal is checked for another try, on a node
// without events.
const tryEvery = time.Second

// KeepTrying writes the missing lines until ctx ends, with growing pauses after
// failures.
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

// maxRoom is the largest buffer for lines that is kept.
const maxRoom = 16 << 10

// allLocked are the lines of everything that is ours now.
func (s *Originals) allLocked() []byte {
	lines := make([]byte, 0, lineLength*(len(s.table.rows)+len(s.remembered)))
	add := func(o origin) { lines = append(o.appendJSON(lines), '\n') }
	for _, r := range s.table.rows {
		if r.noted != 0 {
			add(r.origin())
		}
	}
	for _, o := range s.remembered {
		add(o)
	}
	return lines
}
