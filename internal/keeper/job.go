package keeper

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// job is one row on its way into the kernel: a copy of what the row wanted when
// the work began.
type job struct {
	row    *row
	place  place
	target Target
	value  lifecycle.Value
	want   string
	gen    uint64
	// releasing: want is the text that was there before us, and none of shares.
	releasing bool
	items     []int // of the batch

	// known is a verified text that may spare reading; fresh jobs have none.
	known    string
	hasKnown bool
	// drifted: somebody else changed the verified text since. watched: nobody
	// told of a reason to.
	drifted, watched bool

	// extra: it is of no batch, but may have what the batch gives to others.
	extra bool

	done   bool
	state  State
	kernel string
	err    error
}

func isList(f lifecycle.Field) bool { return f == lifecycle.CPUSetCPUs || f == lifecycle.CPUSetMems }

func (k *Keeper) encode(it Item) (string, error) {
	text, err := cgroup.Encode(k.tree.Version, it.Value)
	if err == nil && it.Value.Field == lifecycle.CPUShares && k.tree.Version == cgroup.V2 && k.curve.Load() {
		text = weightText(cgroup.RuntimeWeight(it.Value.Int))
	}
	if err == nil {
		// Not only the value must make sense, the directory must too.
		err = k.tree.Check(it.Target.Dir, it.Value.Field, it.Value.Key)
	}
	if err != nil {
		name := it.Value.Field.String()
		if it.Value.Key != "" {
			name = it.Value.Key
		}
		return "", &cgroup.Error{Op: "encode", Path: path.Join(it.Target.Dir, name), Value: it.Value.String(), Err: err}
	}
	return text, nil
}

// encoded remembers the last list of a batch: the members of a pool have the
// same.
type encoded struct {
	field      lifecycle.Field
	list, text string
}

// encodeLike is encode, of many items that may have the same list.
func (k *Keeper) encodeLike(it Item, last *encoded) (string, error) {
	if !isList(it.Value.Field) {
		return k.encode(it)
	}
	if last.text != "" && last.field == it.Value.Field && last.list == it.Value.Text && cgroup.IsDir(it.Target.Dir) {
		return last.text, nil
	}
	text, err := k.encode(it)
	if err == nil {
		*last = encoded{field: it.Value.Field, list: it.Value.Text, text: text}
	}
	return text, err
}

// record puts a batch into the table. Of two items for one setting the later
// counts, and both get its outcome.
func (k *Keeper) record(batch []Item, items []int, out []Outcome) []*job {
	k.mu.Lock()
	defer k.mu.Unlock()
	jobs := make([]*job, 0, len(items))
	byRow := make(map[*row]*job, len(items))
	var like encoded
	for _, i := range items {
		want, err := k.encodeLike(batch[i], &like)
		if err != nil {
			out[i].State, out[i].Err = Refused, err
			continue
		}
		if k.unknownLocked(batch[i]) {
			out[i] = k.leaveLocked(batch[i], want)
			continue
		}
		r := k.recordLocked(batch[i], want)
		k.noteLocked(r)
		j := byRow[r]
		if j == nil {
			j = newJob(r)
			byRow[r] = j
			jobs = append(jobs, j)
		}
		j.target, j.value, j.want, j.gen, j.releasing = r.target, r.value, r.want, r.generation, r.releasing
		// Before the first write the original is still to be found out.
		j.known, j.hasKnown = r.kernel, r.verified && (r.hasOriginal || r.carried)
		j.items = append(j.items, i)
	}
	return jobs
}

func (k *Keeper) recordLocked(it Item, want string) *row {
	p := place{it.Target.Dir, it.Value.Field, it.Value.Key}
	r := k.rows[p]
	owner := it.Target.Owner
	switch {
	case r == nil:
		r = k.newRowLocked(p)
		k.byOwner[owner] = append(k.byOwner[owner], r)
	case r.target.Owner != owner:
		k.disownLocked(r)
		k.byOwner[owner] = append(k.byOwner[owner], r)
	}
	k.generation++
	r.generation, r.target, r.value, r.releasing, r.waits = k.generation, it.Target, it.Value, it.Back, it.Back
	r.carried = r.carried || (it.Carried || k.lost && isPartition(p)) && !r.hasOriginal
	k.noteAskedLocked(r, it)
	if idle := k.rows[place{p.dir, lifecycle.Unified, idleKey}]; p.field == lifecycle.CPUShares && idle != nil {
		k.originalLocked(r, idle.weight) // what was there before the cgroup was idle; the kernel has forgotten it
	}
	if it.Back {
		if text, known := r.back(); known {
			want = text
		}
	} else if want != r.want {
		r.left, r.foreign.n, r.foreign.pause = nil, 0, 0 // what is wanted now may be taken
	}
	if want != r.want && r.want != "" {
		r.was, r.shown = cmp.Or(r.shown, r.want), ""
	}
	r.want, r.state, r.err = want, Pending, nil
	return r
}

// lockForLocked returns the lock of a new row: that of the other half, for quota
// and period.
func (k *Keeper) lockForLocked(p place) *sync.Mutex {
	other := p
	switch p.field {
	case lifecycle.CPUQuota:
		other.field = lifecycle.CPUPeriod
	case lifecycle.CPUPeriod:
		other.field = lifecycle.CPUQuota
	}
	if r := k.rows[other]; r != nil {
		return r.writing
	}
	return new(sync.Mutex)
}

// jobsLocked makes fresh jobs of an owner's rows that match, in a fixed order.
func (k *Keeper) jobsLocked(owner string, match func(*row) bool) []*job {
	var jobs []*job
	for _, r := range k.byOwner[owner] {
		if match(r) && (r.want != "" || r.releasing) {
			jobs = append(jobs, newJob(r))
		}
	}
	slices.SortFunc(jobs, func(a, b *job) int { return a.place.compare(b.place) })
	return jobs
}

func newJob(r *row) *job {
	j := &job{row: r, place: r.place, target: r.target, value: r.value, want: r.want, gen: r.generation, releasing: r.releasing}
	if r.left != nil {
		r.state, r.err = Left, r.left
		j.end(Left, "", r.left)
	}
	return j
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.dir, o.dir), cmp.Compare(p.field, o.field), cmp.Compare(p.key, o.key))
}

func (p place) depth() int { return strings.Count(p.dir, "/") }

// alive reports whether the job is still what its row wants. If not, the job
// ends: a row that went is not written any more, and a newer value is written by
// who brought it.
func (k *Keeper) alive(j *job) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.aliveLocked(j)
}

func (k *Keeper) aliveLocked(j *job) bool {
	switch r := k.rows[j.place]; {
	case r != j.row:
		j.end(Forgotten, "", nil)
	case r.generation != j.gen:
		j.end(Superseded, "", nil)
	default:
		return true
	}
	return false
}

// read returns the kernel's text, or the verified one the job knows if that is
// not what is wanted: then it is overwritten whatever it is. Where it is what is
// wanted only the kernel can say that nothing needs writing.
func (k *Keeper) read(j *job) (string, error) {
	if j.hasKnown && !k.holds(j, j.known) {
		return j.known, nil
	}
	return k.tree.Read(j.place.dir, j.place.field, j.place.key)
}

// holds reports whether the kernel's text is what the job wants. Of shares in
// version 2 there are two right images: the kubelet's line and the curve of
// newer OCI runtimes. A runtime that carried the shares chose one; changing it
// into the other would only start a quarrel, and using both on one node would
// turn the order of weights around. So what is seen is learned.
func (k *Keeper) holds(j *job, kernel string) bool {
	same := cgroup.Same(j.place.field, j.place.key, kernel, j.want)
	if k.tree.Version != cgroup.V2 || j.place.field != lifecycle.CPUShares || j.releasing {
		return same
	}
	line, curve := weightText(cgroup.Weight(j.value.Int)), weightText(cgroup.RuntimeWeight(j.value.Int))
	switch {
	case line == curve:
		return same
	case kernel == line:
		k.curve.Store(false)
		return true
	case kernel == curve && j.value.Int == defaultShares:
		// The weight of a cgroup nobody has set, too: it teaches nothing.
		return k.curve.Load()
	case kernel == curve:
		k.curve.Store(true)
		return true
	}
	return same
}

// defaultShares are those of a cgroup nobody has set.
const defaultShares = 1024

func weightText(w int64) string { return strconv.FormatInt(w, 10) }

// keepOriginal records what was there before the first write.
func (k *Keeper) keepOriginal(j *job, current string) {
	k.mu.Lock()
	first := !j.row.hasOriginal && !j.row.carried && !k.doubtfulLocked(j.row)
	if first {
		j.row.original, j.row.hasOriginal = current, true
		k.noteLocked(j.row)
	}
	k.mu.Unlock()
	if first {
		k.flush()
	}
}

// keepFound records what was there and is just what is wanted. Where somebody
// told what would be there, that counts: what was found may be ours.
func (k *Keeper) keepFound(j *job, current string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := j.row; !r.hasOriginal && !r.hasAsked && !r.carried && !r.releasing && !k.doubtfulLocked(r) {
		k.originalLocked(r, current)
	}
}

// originalLocked records what was there before, if that is known and was not before.
func (k *Keeper) originalLocked(r *row, text string) {
	if text == "" || r.hasOriginal || r.carried {
		return
	}
	r.original, r.hasOriginal = text, true
	k.noteLocked(r)
}

// hiddenByUs is hidden of a cgroup that we made idle.
func (k *Keeper) hiddenByUs(p place) bool {
	k.mu.Lock()
	ours := p.field == lifecycle.CPUShares && k.rows[place{p.dir, lifecycle.Unified, idleKey}] != nil
	k.mu.Unlock()
	return ours && k.hidden(p)
}

func (j *job) end(s State, kernel string, err error) {
	j.done, j.state, j.kernel, j.err = true, s, kernel, err
}

// finish ends a job and tells its row. Verified is the text of the file itself,
// which for a clipped list is not what the kernel makes of it.
func (k *Keeper) finish(j *job, s State, kernel, verified string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	inForce := s == Applied || s == Same || s == Clipped
	// Whoever's value it was, this is what the file says now.
	j.row.verified = inForce
	if inForce {
		j.row.kernel = verified
	}
	k.countLocked(j, s)
	if !k.aliveLocked(j) {
		return
	}
	if inForce {
		k.noteFileLocked(j.row)
		if j.row.left != nil { // this was once too often
			s, err = Left, j.row.left
		}
	}
	j.end(s, kernel, err)
	j.row.state, j.row.err = s, err
	if j.watched && s == Applied {
		j.err = k.contestedLocked(j.row)
	}
	k.noteFailedLocked(j, s, err)
	if inForce && verified != j.row.shown && !cgroup.Same(j.place.field, j.place.key, verified, j.want) {
		j.row.shown = verified
		k.noteLocked(j.row)
	}
	if j.releasing && (inForce || s == Pending && !j.row.waits) {
		k.dropLocked(j.row)
	}
}

// fail ends a job by an error: a cgroup that is not there leaves it pending.
func (k *Keeper) fail(j *job, err error) {
	if cgroup.Gone(err) && !k.present(j) {
		k.finish(j, Pending, "", "", nil)
		return
	}
	kernel, _ := k.tree.Read(j.place.dir, j.place.field, j.place.key)
	k.finish(j, Refused, kernel, "", err)
}

// present tells a missing file, which is a refusal, from a missing cgroup, which
// may come.
func (k *Keeper) present(j *job) bool {
	file, err := k.tree.File(j.place.dir, j.place.field, j.place.key)
	if err != nil {
		return true
	}
	controller := ""
	if k.tree.Version == cgroup.V1 {
		controller, _, _ = strings.Cut(file, "/")
		if !k.tree.Exists(".", controller) {
			return true // no such hierarchy here: waiting would not help
		}
	}
	return k.tree.Exists(j.place.dir, controller)
}

// collect gives every item its outcome.
func (k *Keeper) collect(jobs []*job, out []Outcome) {
	for _, j := range jobs {
		for _, i := range j.items {
			out[i].State, out[i].Kernel, out[i].Err = j.state, j.kernel, j.err
		}
	}
}

func outcomes(jobs []*job) []Outcome {
	out := make([]Outcome, len(jobs))
	for i, j := range jobs {
		out[i] = Outcome{Target: j.target, Value: j.value, State: j.state, Kernel: j.kernel, Err: j.err}
	}
	return out
}
