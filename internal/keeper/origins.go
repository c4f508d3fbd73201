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

// Journal stores lines for the keeper of a later run of the agent. The keeper adds the line of a value before it writes
// the value to the kernel. A line must survive the end of the process. It need not survive a reboot, which removes all
// cgroups, so Append and Replace need not sync the disk.
type Journal interface {
	// Append adds lines. Each line ends with a newline.
	Append(lines []byte) error
	// Replace replaces all lines of the journal by these lines.
	Replace(lines []byte) error
}

// Originals has the original texts of settings, from before the agent's first write, and stores them in a journal.
type Originals struct {
	journal Journal
	tree    *cgroup.Tree
	// flushMu is held during writes to the journal. It guards linesSinceReplace and journalRetry.
	flushMu sync.Mutex
	// linesSinceReplace counts the lines that were added after the last Journal.Replace.
	linesSinceReplace int
	// journalRetry has the time at which the keeper writes the journal again after a failed write.
	journalRetry statefile.Retry

	// mu is the keeper's lock. It guards the fields below, except seed and noEarlierJournal, which do not change
	// after Load.
	mu *sync.Mutex
	// table has the rows whose lines are in the journal.
	table *table
	// pendingLines are the lines that are not in the journal yet. spareBuffer is an empty buffer for later lines.
	pendingLines, spareBuffer []byte
	// seed is the seed of row.journalHash.
	seed maphash.Seed
	// leftovers has the settings that have no row now, but whose files possibly still have a text of the agent. These
	// are settings that an earlier keeper wrote, and settings of owners that were reported as ended. endedCount counts
	// the settings of the second kind that were added after the last call of forgetRemovedCgroups.
	leftovers map[fileKey]origin
	// Some settings in leftovers made a container's cgroup a cpuset partition. For each of these settings, leftoverCPUs
	// has the CPUs that the agent wrote.
	leftoverCPUs map[fileKey]cgroup.IDs
	endedCount   int
	journalErr   error // why some lines are missing in the journal; nil if none is missing
	// noEarlierJournal means that no journal of an earlier keeper existed. originalsLost means that, although there
	// is no journal, an earlier keeper wrote to the kernel. Texts in the kernel may then come from that keeper.
	noEarlierJournal, originalsLost bool
	// cgroupsAtLoss are the cgroups that existed when the keeper noticed that the originals are lost.
	cgroupsAtLoss map[string]bool
}

// history has the earlier texts of a setting, as far as the keeper knows them.
type history struct {
	// LastText is the text from before the last change of the desired text; "" if there was no change. The file still
	// has LastText if the write of the new text did not succeed.
	LastText string `json:"was,omitempty"`
	// Original is the text from before the agent's first write. Requested is the kernel text of RequestedValue, the
	// value that the runtime reported as requested. The keeper restores Original or, if there is none, Requested. If
	// RuntimeMayHaveWritten is true, the runtime possibly wrote the agent's value when it created the cgroup. The
	// keeper then does not take the text in the file as Original.
	Original              *string `json:"original,omitempty"`
	Requested             *string `json:"asked,omitempty"`
	RequestedValue        string  `json:"askedFor,omitempty"`
	RuntimeMayHaveWritten bool    `json:"carried,omitempty"`
	// Weight is only in the history of the file cpu.idle. It is the text that the cgroup's cpu.weight or cpu.shares had
	// before the keeper set cpu.idle to 1. The keeper stores the weight, because the kernel does not.
	Weight string `json:"weight,omitempty"`
}

// origin is one line of the journal: a setting that the agent wrote, and the text to restore.
type origin struct {
	Owner  string          `json:"owner,omitempty"`
	Dir    string          `json:"dir"`
	Parent bool            `json:"parent,omitempty"` // see Target.Parent
	Field  lifecycle.Field `json:"field"`
	Key    string          `json:"key,omitempty"`
	// AgentText is the text that the agent wrote to the file, or writes after it has stored this line.
	AgentText string `json:"ours,omitempty"`
	history
	// TextRemoved means that the agent's text is no longer in the file.
	TextRemoved bool `json:"gone,omitempty"`
}

// key returns the key of the setting.
func (o *origin) key() fileKey { return fileKey{o.Dir, o.Field, o.Key} }

// extraLines limits the length of the journal. The keeper replaces all lines when more than 2*n+extraLines lines were
// added since the last replacement, where n is the number of settings.
const extraLines = 1000

// Load makes the keeper store originals in a journal. It first reads lines, the content of the journal of an earlier
// keeper; nil if there was no journal. It skips lines that it cannot read, and returns an error with the number of
// these lines. Call it before the keeper is used.
func (s *Originals) Load(j Journal, lines []byte) error {
	s.journal, s.noEarlierJournal = j, lines == nil
	bad := 0
	for line := range bytes.Lines(lines) { // unlike bufio.Scanner, bytes.Lines has no limit for the length of a line
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var o origin
		if err := json.Unmarshal(line, &o); err != nil || !cgroup.IsDir(o.Dir) {
			bad++
			continue
		}
		if o.TextRemoved {
			s.removeLeftover(o.key())
		} else {
			s.addLeftover(o)
		}
	}
	s.forgetRemovedCgroups()
	if bad > 0 {
		return fmt.Errorf("%d lines of the journal of original values cannot be read", bad)
	}
	return nil
}

// LoadFailed stores the reason why the agent could not open the journal. The keeper writes the whole journal as soon as
// a write to the journal succeeds.
func (s *Originals) LoadFailed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journalErr = err
}

// forgetRemovedCgroups drops those settings in leftovers whose cgroups were removed.
func (s *Originals) forgetRemovedCgroups() {
	s.mu.Lock()
	gone := map[string]bool{}
	for p := range s.leftovers {
		gone[p.dir] = false
	}
	s.endedCount = 0
	s.mu.Unlock()
	for dir := range gone {
		gone[dir] = s.tree.IsMissing(dir)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range slices.SortedFunc(maps.Keys(s.leftovers), fileKey.compare) {
		if gone[p.dir] {
			s.forget(p) // the cgroup was removed, or does not exist yet, so no file has a text of the agent
		}
	}
}

// JournalError returns the reason why some originals are not in the journal, so that the next run of the agent cannot
// restore them. It returns nil if the journal has all originals.
func (s *Originals) JournalError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal == nil {
		return errors.New("the agent could not open the journal of original values, so it stores no original values")
	}
	return s.journalErr
}

// NoteEarlierKeeper records that an earlier keeper wrote to the kernel. It returns true if the
// originals of that keeper are lost. Present texts in the existing cgroups (existingDirs) are then not
// taken as originals.
func (s *Originals) NoteEarlierKeeper(existingDirs []string) (lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.originalsLost = s.originalsLost || s.journal != nil && s.noEarlierJournal
	if !s.originalsLost {
		return false
	}
	for _, dir := range existingDirs {
		s.cgroupsAtLoss[dir] = true
	}
	return true
}

// mayHaveUnjournaledWrite reports whether an earlier keeper, whose journal is lost, may have written the text of a row.
func (s *Originals) mayHaveUnjournaledWrite(r *row) bool {
	return s.originalsLost && s.cgroupsAtLoss[r.dir]
}

// CopiedSetting is a setting of a container for which an earlier agent sent a value to the runtime. The
// runtime's stored resources of the container have this value.
type CopiedSetting struct {
	Owner, Dir     string
	Field          lifecycle.Field
	RequestedValue string // the value that the container's creation requested; "" if the value is not known
}

// Copied lists the settings of existing containers for which an earlier agent sent a value to the runtime. It leaves
// out a setting if the value that the agent sent equals the requested value.
func (s *Originals) Copied() (out []CopiedSetting) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.leftovers))
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

// claim moves the history of a setting from leftovers to the setting's new row.
func (s *Originals) claim(r *row) {
	o, known := s.leftovers[r.fileKey]
	if !known {
		return
	}
	s.removeLeftover(r.fileKey)
	r.history = o.history
	r.history.LastText = ""
	r.journalHash = 1 // not 0, because the journal has a line of this setting
}

// addEnded adds the setting of a row to leftovers. It is called when the keeper drops the row and the agent's text
// stays in the kernel.
func (s *Originals) addEnded(r *row) {
	s.addLeftover(r.origin())
	s.endedCount++
}

// addLeftover adds a setting to leftovers.
func (s *Originals) addLeftover(o origin) {
	s.leftovers[o.key()] = o
	if o.Key == cgroup.ExclusiveFile && o.Owner != ancestorOwner {
		s.leftoverCPUs[o.key()], _ = cgroup.ParseIDs(o.AgentText) // the set that the earlier keeper wrote
	}
}

// removeLeftover removes a setting from leftovers. It adds no line to the journal.
func (s *Originals) removeLeftover(p fileKey) {
	delete(s.leftovers, p)
	delete(s.leftoverCPUs, p)
}

// forget removes a setting from leftovers, because the setting's file has no text of the agent any more. It also adds a
// line to the journal, so that a later keeper knows this.
func (s *Originals) forget(p fileKey) {
	s.removeLeftover(p)
	if s.journal != nil {
		o := origin{Dir: p.dir, Field: p.field, Key: p.key, TextRemoved: true}
		s.pendingLines = append(o.appendJSON(s.pendingLines), '\n')
	}
}

// storeOriginal stores a text as the original of a row.
func (s *Originals) storeOriginal(r *row, text string) {
	r.history.Original = &text
	s.addLine(r)
}

// storeOriginalIfMissing stores a text as the original of a row, if the text is known and the row has no original yet.
func (s *Originals) storeOriginalIfMissing(r *row, text string) {
	if text != "" && r.history.Original == nil && !r.history.RuntimeMayHaveWritten {
		s.storeOriginal(r, text)
	}
}

// lineLength is the usual length of a line of the journal.
const lineLength = 320

// appendJSON appends the JSON of a line. It returns the same JSON as json.Marshal in less time,
// because a container's creation waits until the lines are written.
func (o *origin) appendJSON(b []byte) []byte {
	at, field := len(b), o.Field.String()
	for _, m := range [...]struct {
		name string
		has  bool    // the line has this member
		text *string // the string value of the member; nil means that the value is true
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

// appendText appends a member of a JSON object. It calls json.Marshal only for texts that need escapes.
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

// addLine adds a row's line to the pending lines of the journal, if the line has changed.
func (s *Originals) addLine(r *row) {
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

// origin returns the line of the journal for the row.
func (r *row) origin() origin {
	return origin{
		Owner: r.target.Owner, Dir: r.dir, Parent: r.target.Parent, Field: r.field, Key: r.key,
		AgentText: cmp.Or(r.shownText, r.text), history: r.history,
	}
}

// noteTextRemoved records in the journal that the row's file has no text of the agent any more. It adds no line if the
// journal has no line of the row.
func (s *Originals) noteTextRemoved(r *row) {
	if r.journalHash != 0 {
		s.forget(r.fileKey)
	}
}

// flush writes the pending lines to the journal. When it returns, the journal has all lines up to now, or JournalError
// returns the reason why lines are missing.
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

// flushLocked is flush for a caller that holds flushMu. After a failed write, the journal may have incomplete lines, so
// flushLocked then replaces the whole journal. It does so after a pause, or at once if atOnce is set.
func (s *Originals) flushLocked(atOnce bool) {
	s.mu.Lock()
	lines := s.pendingLines
	s.pendingLines, s.spareBuffer = s.spareBuffer[:0], nil
	s.linesSinceReplace += bytes.Count(lines, []byte{'\n'})
	whole := s.journalErr != nil || s.linesSinceReplace > 2*(len(s.table.rows)+len(s.leftovers))+extraLines
	wait := s.journalErr != nil && !atOnce && s.journalRetry.TooEarly(time.Now())
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

// replaceAll replaces the lines of the journal by the lines of all settings. Lines that are added meanwhile stay in
// pendingLines.
func (s *Originals) replaceAll() error {
	s.mu.Lock()
	all := s.allLinesLocked()
	s.mu.Unlock()
	err := s.journal.Replace(all)
	if err == nil {
		s.linesSinceReplace = 0
	}
	return err
}

// maxFinalTries is the maximum number of times that SaveNow tries to write the missing lines of the journal.
const maxFinalTries = 3

// SaveNow writes the missing lines of the journal when the agent ends. It does not wait for the pause after a failed
// write.
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

// journalCheckInterval is the interval at which RetrySaving checks whether lines are missing in the journal.
const journalCheckInterval = time.Second

// RetrySaving writes the journal again after failed writes, with growing pauses, until ctx ends. Events of containers
// also cause writes of the journal, but a node may have no events for a long time.
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

// maxKeptBuffer is the largest capacity in bytes that spareBuffer may have.
const maxKeptBuffer = 16 << 10

// allLinesLocked returns the lines of all settings whose files may have a text of the agent now.
func (s *Originals) allLinesLocked() []byte {
	lines := make([]byte, 0, lineLength*(len(s.table.rows)+len(s.leftovers)))
	add := func(o origin) { lines = append(o.appendJSON(lines), '\n') }
	for _, r := range s.table.rows {
		if r.journalHash != 0 {
			add(r.origin())
		}
	}
	for _, o := range s.leftovers {
		add(o)
	}
	return lines
}
