package keeper

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Target is a cgroup whose values are kept.
type Target struct {
	Owner  string // container id or pod sandbox id
	Dir    string // relative, as cgroup.Path and cgroup.PodPath return it
	Parent bool   // a pod-level cgroup: its tasks are in cgroups below it
}

// Item is a value wanted in a cgroup.
type Item struct {
	Target Target
	Value  lifecycle.Value
	// Asked is what would be there without us, where somebody told; nil where
	// only the kernel knows. An empty list is what the cgroup above has.
	Asked *lifecycle.Value
	// Carried says that our value may be there already, not by a write of this
	// keeper: what is found is not the original.
	Carried bool
	// Back says that nobody wants anything there any more: what would be there
	// without us is given back, Value where neither Asked nor an original is
	// known, and then the setting is no longer kept.
	Back bool
	// Untold says, with Back, that nobody knows what would be there: where the
	// keeper has not found it there before, the value stays and is reported.
	Untold bool
}

// State says what became of a desired value.
type State int

// The states of a value.
const (
	Pending    State = iota // desired; not in the kernel yet, as the cgroup does not exist
	Applied                 // written, read back and found in force
	Same                    // the kernel had it already; nothing was written
	Refused                 // the kernel or a check of ours refused it; Err says why
	Clipped                 // only what the parent cgroup allows of it is in force
	Forgotten               // its row went; nothing was written
	Superseded              // a later value was recorded meanwhile and will be written by who brought it
	Left                    // somebody else's value is there and stays; Err says why
)

var stateNames = [...]string{"pending", "applied", "same", "refused", "clipped", "forgotten", "superseded", "left"}

// String returns the state's name as status prints it.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return stateNames[s]
}

// MarshalText makes a State readable in JSON and YAML.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Outcome is what became of one value.
type Outcome struct {
	Target Target
	Value  lifecycle.Value
	State  State
	Kernel string // what the kernel now says, where it was asked
	Err    error
}

// ErrHeld refuses CPUs that another cgroup of the same batch was to give up and
// did not: what is taken from one is not given to another before it is free.
var ErrHeld = errors.New("another cgroup has not given these up")

// Keeper keeps values in cgroups. Its methods may be called at once from many
// goroutines.
type Keeper struct {
	tree *cgroup.Tree
	// curve: this node's runtime maps shares to weights by the newer curve. It
	// is learned from what the runtime wrote; until then the kubelet's line.
	curve atomic.Bool
	// actors see to fields that are no cgroup file; fixed before use.
	actors     map[lifecycle.Field]Actor
	everyActor []Actor

	// lists is held over recording and writing of CPU and memory node lists. It
	// is what orders those writes: which CPUs a cgroup may grow to depends on
	// which ones another has already lost, so batches of them must not mix. The
	// writes take microseconds. Other files wait only for their own row (see
	// row.writing): a lower memory limit may make the kernel reclaim for
	// seconds.
	lists sync.Mutex

	mu         sync.Mutex
	rows       map[place]*row
	byOwner    map[string][]*row // the same rows
	generation uint64
	failed     map[*row]bool // refused for a reason that may pass
	results    [len(stateNames)]uint64
	drift      map[string]uint64
	acts       map[string]map[acted]Item // what actors are asked for, by owner
	origins
	watched
	partitions
}

// place names a setting of a cgroup.
type place struct {
	dir   string
	field lifecycle.Field
	key   string
}

// row is one desired value. All but writing and place is guarded by Keeper.mu.
type row struct {
	place
	target     Target
	value      lifecycle.Value
	want       string // the kernel text of value
	generation uint64
	// releasing says that want is the original, and the row goes when it is in
	// force; where the cgroup is not there it waits for it, if it is to come.
	releasing, waits bool

	// original is the text found before the first write. It is not looked for
	// where carried: there the runtime wrote our value, and nothing was before.
	original    string
	hasOriginal bool
	carried     bool
	// asked is the text that would be there without us, as somebody told, who
	// said askedFor.
	asked, askedFor string
	hasAsked        bool
	// shown is the kernel's text of want, where that is another; was is the text
	// from before want.
	shown, was string
	// file is where the value is, once it is in force and somebody watches.
	file    string
	foreign foreign
	// noted sums up what the journal has of the row.
	noted uint64
	// left is why the row is not written: the value is somebody else's.
	left error
	// kernel is the text last read back, where verified; what others write since
	// is found by Settle.
	kernel   string
	verified bool
	// weight is the cpu.weight or cpu.shares a row of cpu.idle put aside: the
	// kernel forgets it while a cgroup is idle.
	weight string
	state  State
	err    error

	// writing orders the writes of the row's file. Quota and period share one.
	writing *sync.Mutex
}

// New makes a keeper of a tree's files.
func New(tree *cgroup.Tree) *Keeper {
	return &Keeper{tree: tree, rows: map[place]*row{}, failed: map[*row]bool{}, byOwner: map[string][]*row{}, partitions: partitions{parts: map[place]*row{}}, origins: origins{remembered: map[place]origin{}, seed: maphash.MakeSeed()}}
}

// Version is the version of the hierarchy it keeps.
func (k *Keeper) Version() cgroup.Version { return k.tree.Version }

// Apply records values as desired and writes those that differ from what the
// kernel has: what shrinks before what grows, children before parents where they
// shrink and after them where they grow. It returns one outcome per item, in
// their order. A value that cannot be encoded is refused and not recorded.
func (k *Keeper) Apply(batch []Item) []Outcome {
	out, _ := k.apply(batch, false)
	return out
}

func (k *Keeper) apply(batch []Item, urgent bool) (out []Outcome, later []*job) {
	out = make([]Outcome, len(batch))
	items := make([]int, 0, len(batch))
	sets := false
	acts := false
	for i, it := range batch {
		out[i] = Outcome{Target: it.Target, Value: it.Value}
		if k.actors[it.Value.Field] != nil {
			acts = true
			continue
		}
		sets = sets || isList(it.Value.Field) || isPartition(place{field: it.Value.Field, key: it.Value.Key})
		items = append(items, i)
	}
	if sets = sets || k.orphaned(); sets {
		k.lists.Lock()
	}
	jobs := k.record(batch, items, out)
	k.flush()
	if sets {
		later = k.runSets(k.withFailed(jobs), urgent)
		k.lists.Unlock()
	}
	k.runScalars(jobs)
	k.collect(jobs, out)
	k.flush()
	if acts {
		k.noteActs(batch)
		for i, it := range batch {
			if k.actors[it.Value.Field] != nil {
				out[i] = k.act(it)
			}
		}
	}
	return out, later
}

// Note records values as desired without writing them: they were carried
// in-line, and the cgroup may not exist yet.
func (k *Keeper) Note(batch []Item) {
	k.noteActs(batch)
	k.noteRows(batch)
	k.flush()
}

func (k *Keeper) noteRows(batch []Item) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, it := range batch {
		if k.actors[it.Value.Field] != nil {
			continue
		}
		want, err := k.encode(it)
		it.Carried = !it.Back
		r := k.recordLocked(it, want)
		r.state, r.err = Pending, nil
		if err != nil {
			r.state, r.err = Refused, err
			continue
		}
		k.noteLocked(r)
	}
}

// Settle writes everything desired for one owner that the kernel does not have,
// trusting nothing read before. It is called when a container has started, after
// a refusal, and to find what others changed.
func (k *Keeper) Settle(owner string) []Outcome {
	return append(k.settle(false, owner), k.settleActs(owner)...)
}

// Repair is Settle of the cgroup files of several owners, in one order the
// kernel accepts. What it puts right somebody has changed behind our back: it
// counts as a fight. A file that is contested waits until it is Due.
func (k *Keeper) Repair(owners ...string) []Outcome { return k.settle(true, owners...) }

func (k *Keeper) settle(watched bool, owners ...string) []Outcome {
	k.lists.Lock()
	k.mu.Lock()
	var jobs []*job
	for _, owner := range owners {
		jobs = append(jobs, k.jobsLocked(owner, func(r *row) bool {
			_, paused := k.pausedLocked(r)
			return !watched || !paused
		})...)
	}
	for _, j := range jobs {
		j.watched = watched
	}
	k.mu.Unlock()
	k.runSets(k.withFailed(jobs), false)
	k.lists.Unlock()
	k.runScalars(jobs)
	k.flush()
	return outcomes(jobs)
}

// Forget drops the rows of an owner that is gone. Nothing is written. What was
// there before us stays known while the cgroup is there: runtimes take containers
// for ended that go on (containerd does when it cannot reach a shim after a
// restart), and a release gives back to those too.
func (k *Keeper) Forget(owner string) {
	k.forgetActs(owner)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.byOwner[owner] {
		delete(k.rows, r.place)
		delete(k.parts, r.place)
		k.dropFileLocked(r)
		if isPartition(r.place) {
			k.orphans = append(k.orphans, r.place)
		}
		if r.verified && r.left == nil {
			k.remembered[r.place] = r.origin()
			k.parted++
		}
	}
	delete(k.byOwner, owner)
}

// dropLocked takes a row out of the table.
func (k *Keeper) dropLocked(r *row) {
	delete(k.rows, r.place)
	delete(k.parts, r.place)
	k.disownLocked(r)
	k.dropFileLocked(r)
	k.noteGoneLocked(r)
}

func (k *Keeper) disownLocked(r *row) {
	mine := slices.DeleteFunc(slices.Clone(k.byOwner[r.target.Owner]), func(o *row) bool { return o == r })
	if len(mine) == 0 {
		delete(k.byOwner, r.target.Owner)
		return
	}
	k.byOwner[r.target.Owner] = mine
}

// Row is one line of the table, for status.
type Row struct {
	Owner      string          `json:"owner"`
	Dir        string          `json:"dir"`
	File       string          `json:"file"`
	Parent     bool            `json:"parent,omitempty"`
	Value      lifecycle.Value `json:"value"`
	Want       string          `json:"want"` // the value as kernel text
	Kernel     string          `json:"kernel,omitempty"`
	Original   string          `json:"original,omitempty"`
	Written    bool            `json:"written"` // Original is known
	Generation uint64          `json:"generation"`
	State      State           `json:"state"`
	Foreign    uint64          `json:"foreign,omitempty"` // writes of others that were put right
	Err        error           `json:"-"`
}

// Rows returns the table, by directory and file.
func (k *Keeper) Rows() []Row {
	k.mu.Lock()
	rows := make([]Row, 0, len(k.rows))
	for _, r := range k.rows {
		file, _ := k.tree.File(r.dir, r.field, r.key)
		rows = append(rows, Row{
			Owner: r.target.Owner, Dir: r.dir, File: file, Parent: r.target.Parent, Value: r.value, Want: r.want,
			Kernel: r.kernel, Original: r.original, Written: r.hasOriginal, Generation: r.generation,
			State: r.state, Foreign: r.foreign.writes, Err: r.err,
		})
	}
	k.mu.Unlock()
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Dir, b.Dir), cmp.Compare(a.Value.Field, b.Value.Field), cmp.Compare(a.Value.Key, b.Value.Key))
	})
	return rows
}

// ParentCPUs returns the CPUs an existing cgroup allows its children, "" if it
// bounds them no more than the root does, and whether they could be read. In
// version 2 what the root lacks is offline, and comes back to every cgroup that
// names it; whoever was bounded meanwhile would stay without it. What partitions of
// ours have counts as allowed likewise.
func (k *Keeper) ParentCPUs(dir string) (string, bool) {
	list, err := k.tree.ParentCPUs(dir)
	if err != nil || k.tree.Version == cgroup.V1 {
		return list, err == nil
	}
	list, root, err := k.withPartitions(dir)
	if err == nil && root == list {
		return "", true
	}
	return list, err == nil
}
