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

// Journal keeps lines where a later keeper finds them. A line is with the
// journal before the kernel gets the value it tells of; it need not be on a
// disk: cgroups do not outlive the kernel, and what a dead process has written
// does.
type Journal interface {
	// Append adds whole lines.
	Append(lines []byte) error
	// Replace puts lines in place of all that were there.
	Replace(lines []byte) error
}

// origins is what the keeper and its journal know of texts from before us.
type origins struct {
	journal Journal
	// flushing orders what reaches the journal; it guards appended and retry.
	flushing sync.Mutex
	// appended counts lines since the journal was last replaced.
	appended int
	// retry says when the journal is written anew after it failed.
	retry statefile.Retry

	// Guarded by Keeper.mu. written are lines the journal has, for their room.
	lines, written []byte
	// seed is of the sums that tell a row's line from its last one.
	seed maphash.Seed
	// remembered are settings that an earlier keeper wrote and nobody has claimed,
	// or whose owner is said to be gone. parted counts the latter since it was
	// last looked which of them are.
	remembered map[place]origin
	parted     int
	unkept     error // why the journal does not have all of it
	// empty: no earlier keeper left a journal. lost: one wrote all the same, so
	// what is found in the kernel may be ours.
	empty, lost bool
	// older are the cgroups that were there when it was noticed that it is lost.
	older map[string]bool
}

// origin is one line of the journal: a setting of ours, and what is to be given
// back for it.
type origin struct {
	Owner  string          `json:"owner,omitempty"`
	Dir    string          `json:"dir"`
	Parent bool            `json:"parent,omitempty"`
	Field  lifecycle.Field `json:"field"`
	Key    string          `json:"key,omitempty"`
	// Ours is the kernel text that was, or is about to be, written; Was is what
	// is there until then.
	Ours string `json:"ours,omitempty"`
	Was  string `json:"was,omitempty"`
	// Original was found there before; Asked is what would be there without us.
	Original *string `json:"original,omitempty"`
	Asked    *string `json:"asked,omitempty"`
	AskedFor string  `json:"askedFor,omitempty"`
	Carried  bool    `json:"carried,omitempty"`
	Weight   string  `json:"weight,omitempty"`
	// Gone: nothing of ours is there any more.
	Gone bool `json:"gone,omitempty"`
}

// slack is how many lines more than twice its rows a journal may have.
const slack = 1000

// Keep has the keeper remember, over a restart, what was there before it wrote.
// What an earlier keeper left in the journal is read first, nil where there was
// no journal; lines that cannot be read are passed over and told of. It is called
// before the keeper is used.
func (k *Keeper) Keep(j Journal, earlier []byte) error {
	k.journal = j
	k.empty = earlier == nil
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
		p := place{o.Dir, o.Field, o.Key}
		if o.Gone {
			delete(k.remembered, p)
			continue
		}
		k.remembered[p] = o
	}
	k.dropGone()
	if bad > 0 {
		return fmt.Errorf("%d lines of what was there before us cannot be read", bad)
	}
	return nil
}

// KeepLater says why the journal could not be opened: it is written anew once
// that is possible.
func (k *Keeper) KeepLater(why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unkept = why
}

// dropGone forgets what is remembered of cgroups that are gone.
func (k *Keeper) dropGone() {
	k.mu.Lock()
	gone := map[string]bool{}
	for p := range k.remembered {
		gone[p.dir] = false
	}
	k.parted = 0
	k.mu.Unlock()
	for dir := range gone {
		gone[dir] = k.Gone(dir)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range slices.SortedFunc(maps.Keys(k.remembered), place.compare) {
		if gone[p.dir] {
			delete(k.remembered, p)
			k.tellGoneLocked(p) // a container that has not started yet is to have it
		}
	}
}

// Kept reports why what was there before us would not be known after a restart;
// nil where it would.
func (k *Keeper) Kept() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.journal == nil {
		return errors.New("nothing is kept")
	}
	return k.unkept
}

// Wrote tells the keeper that an earlier one has written. It reports whether
// nothing is known of that: then what is found in the cgroups that are there by
// now is not taken for what was there before.
func (k *Keeper) Wrote(there []string) (lost bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost = k.lost || k.journal != nil && k.empty
	if !k.lost {
		return false
	}
	if k.older == nil {
		k.older = make(map[string]bool, len(there))
	}
	for _, dir := range there {
		k.older[dir] = true
	}
	return true
}

// doubtfulLocked reports whether what is found in a cgroup may be ours, written
// by an earlier keeper that left no word of it.
func (k *Keeper) doubtfulLocked(r *row) bool { return k.lost && k.older[r.dir] }

// Copied is a setting of a container that the runtime was given too, and so has
// in its stored copy.
type Copied struct {
	Owner, Dir string
	Field      lifecycle.Field
	Was        string // that the runtime was asked for; "" where that is not known
}

// Copied lists what an earlier keeper left of containers that still have a
// cgroup, as far as the runtime wrote it.
func (k *Keeper) Copied() []Copied {
	k.mu.Lock()
	var all []origin
	for _, o := range k.remembered {
		if o.Carried && !o.Parent && o.Key == "" {
			all = append(all, o)
		}
	}
	k.mu.Unlock()
	var out []Copied
	for _, o := range all {
		if _, err := k.tree.Read(o.Dir, o.Field, o.Key); err == nil && (o.Asked == nil || *o.Asked != o.Ours) {
			out = append(out, Copied{o.Owner, o.Dir, o.Field, o.AskedFor})
		}
	}
	slices.SortFunc(out, func(a, b Copied) int { return cmp.Or(cmp.Compare(a.Dir, b.Dir), cmp.Compare(a.Field, b.Field)) })
	return out
}

// newRowLocked adds a row, with what an earlier keeper knew of its setting.
func (k *Keeper) newRowLocked(p place) *row {
	r := &row{place: p, writing: k.lockForLocked(p)}
	k.rows[p] = r
	if isPartition(p) {
		k.parts[p] = r
	}
	if o, known := k.remembered[p]; known {
		delete(k.remembered, p)
		r.take(o)
		r.noted = 1 // some line is: when the row goes, another is to say so
	}
	return r
}

// take makes a row of a line.
func (r *row) take(o origin) {
	r.carried, r.weight = o.Carried, o.Weight
	if o.Original != nil {
		r.original, r.hasOriginal = *o.Original, true
	}
	if o.Asked != nil {
		r.asked, r.askedFor, r.hasAsked = *o.Asked, o.AskedFor, true
	}
}

// lineLength is about that of a line.
const lineLength = 320

// appendJSON appends what json.Marshal makes of a line. Lines are written while
// containers are created, and made all anew now and then: reflection would be
// most of the work.
func (o *origin) appendJSON(b []byte) []byte {
	at := len(b)
	if o.Owner != "" {
		b = appendText(b, "owner", o.Owner)
	}
	b = appendText(b, "dir", o.Dir)
	if o.Parent {
		b = append(b, `,"parent":true`...)
	}
	b = appendText(b, "field", o.Field.String())
	for _, t := range []struct{ name, text string }{{"key", o.Key}, {"ours", o.Ours}, {"was", o.Was}} {
		if t.text != "" {
			b = appendText(b, t.name, t.text)
		}
	}
	if o.Original != nil {
		b = appendText(b, "original", *o.Original)
	}
	if o.Asked != nil {
		b = appendText(b, "asked", *o.Asked)
	}
	if o.AskedFor != "" {
		b = appendText(b, "askedFor", o.AskedFor)
	}
	if o.Carried {
		b = append(b, `,"carried":true`...)
	}
	if o.Weight != "" {
		b = appendText(b, "weight", o.Weight)
	}
	if o.Gone {
		b = append(b, `,"gone":true`...)
	}
	b[at] = '{' // in place of the first comma
	return append(b, '}')
}

// appendText appends a member of an object. What is not plain is quoted by the
// library.
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

// noteAskedLocked keeps what would be there without us. What was found there
// before does not count any more once somebody asks for something new.
func (k *Keeper) noteAskedLocked(r *row, it Item) {
	if it.Asked == nil {
		return
	}
	said := it.Asked.String()
	if r.hasAsked && r.askedFor != said {
		r.hasOriginal, r.carried = false, true
	}
	if r.asked, r.hasAsked = k.askedText(it); r.hasAsked {
		r.askedFor = said
	}
}

// back returns what would be in the file without us, where that is known: what
// was found there, or else what somebody told.
func (r *row) back() (string, bool) {
	if r.hasOriginal {
		return r.original, true
	}
	return r.asked, r.hasAsked
}

// askedText is the kernel text of what would be there without us.
func (k *Keeper) askedText(it Item) (string, bool) {
	if isList(it.Asked.Field) && it.Asked.Text == "" {
		return "", true
	}
	text, err := k.encode(Item{Target: it.Target, Value: *it.Asked})
	return text, err == nil
}

// noteLocked has the journal know a row, if it does not yet.
func (k *Keeper) noteLocked(r *row) {
	if k.journal == nil {
		return
	}
	o := r.origin()
	before := len(k.lines)
	lines := o.appendJSON(k.lines)
	if n := maphash.Bytes(k.seed, lines[before:]); n != r.noted {
		r.noted = n
		k.lines = append(lines, '\n')
	}
}

func (r *row) origin() origin {
	o := origin{
		Owner: r.target.Owner, Dir: r.dir, Parent: r.target.Parent, Field: r.field, Key: r.key,
		Ours: cmp.Or(r.shown, r.want), Was: r.was, Carried: r.carried, Weight: r.weight,
	}
	if r.hasOriginal {
		o.Original = &r.original
	}
	if r.hasAsked {
		o.Asked, o.AskedFor = &r.asked, r.askedFor
	}
	return o
}

// noteGoneLocked tells the journal that nothing of ours is there any more.
func (k *Keeper) noteGoneLocked(r *row) {
	if r.noted != 0 {
		k.tellGoneLocked(r.place)
	}
}

func (k *Keeper) tellGoneLocked(p place) {
	if k.journal != nil {
		o := origin{Dir: p.dir, Field: p.field, Key: p.key, Gone: true}
		k.lines = append(o.appendJSON(k.lines), '\n')
	}
}

// flush hands the journal the lines there are. It returns when they, and all
// that came before, are there, or Kept says why not.
func (k *Keeper) flush() {
	k.mu.Lock()
	many := k.parted > slack
	k.mu.Unlock()
	if many {
		k.dropGone()
	}
	if k.journal != nil {
		k.flushing.Lock()
		defer k.flushing.Unlock()
		k.flushLocked(false)
	}
}

// flushLocked is flush, with flushing held. A journal that failed has lines
// missing, or torn ones: until all are written anew nothing is added to it. That
// is tried after a pause, or at once where now is set.
func (k *Keeper) flushLocked(now bool) {
	k.mu.Lock()
	lines := k.lines
	k.lines, k.written = k.written[:0], nil
	k.appended += bytes.Count(lines, []byte{'\n'})
	whole := k.unkept != nil || k.appended > 2*(len(k.rows)+len(k.remembered))+slack
	wait := k.unkept != nil && !now && k.retry.Resting(time.Now())
	k.mu.Unlock()
	var err error
	switch {
	case wait:
	case whole:
		err = k.replaceAll()
	case len(lines) > 0:
		if failed := k.journal.Append(lines); failed != nil {
			if err = k.replaceAll(); err != nil {
				err = errors.Join(failed, err)
			}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !wait && (whole || len(lines) > 0) {
		k.unkept = err
		k.retry.Note(time.Now(), err)
	}
	if cap(lines) <= mostRoom {
		k.written = lines
	}
}

// replaceAll writes the journal anew. Lines that are made meanwhile come after it.
func (k *Keeper) replaceAll() error {
	k.mu.Lock()
	all := k.allLocked()
	k.mu.Unlock()
	err := k.journal.Replace(all)
	if err == nil {
		k.appended = 0
	}
	return err
}

// lastTries is how often a clean end tries to write what the journal lacks.
const lastTries = 3

// KeepNow writes what the journal lacks at a clean end, whenever that failed last.
func (k *Keeper) KeepNow() {
	if k.journal == nil {
		return
	}
	k.flushing.Lock()
	defer k.flushing.Unlock()
	for range lastTries {
		k.flushLocked(true)
		if k.Kept() == nil {
			return
		}
	}
}

// tryEvery is how often it is looked whether a journal that failed is to be
// written anew, on a node where nothing happens that would do it.
const tryEvery = time.Second

// KeepTrying writes what the journal lacks, again and again with growing pauses
// where that fails, until ctx ends.
func (k *Keeper) KeepTrying(ctx context.Context) error {
	look := time.NewTicker(tryEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		k.mu.Lock()
		failed := k.journal != nil && k.unkept != nil
		k.mu.Unlock()
		if failed {
			k.flush()
		}
	}
}

// mostRoom is how much room for lines is kept.
const mostRoom = 16 << 10

// allLocked are the lines of all that is ours now.
func (k *Keeper) allLocked() []byte {
	lines := make([]byte, 0, lineLength*(len(k.rows)+len(k.remembered)))
	add := func(o origin) { lines = append(o.appendJSON(lines), '\n') }
	for _, r := range k.rows {
		if r.noted != 0 {
			add(r.origin())
		}
	}
	for _, o := range k.remembered {
		add(o)
	}
	return lines
}
