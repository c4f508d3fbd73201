package conductor_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/test/recorded"
)

// recordedKind is a kind of recorded histories.
type recordedKind struct {
	name string
	v1   bool
	// make makes the node; then play plays on it.
	make func(t testing.TB, v cgroup.Version, r *rand.Rand) *model
	play func(tr *tracked, r *rand.Rand)
}

var recordedKinds = []recordedKind{
	{"nri", true, plainNode(nil), playSteps},
	{"cri", true, plainNode(func(mo *model) { mo.proxied = true }), playSteps},
	{"bypass", true, plainNode(func(mo *model) { mo.from = observing{} }), playSteps},
	{"hook-server", true, func(tb testing.TB, v cgroup.Version, r *rand.Rand) *model {
		tb.Helper()
		mo := plainNode(nil)(tb, v, r)
		mo.proxied = r.IntN(2) == 0
		mo.liar = arbitraryHookServer(r.IntN(50))
		mo.boot()
		return mo
	}, playSteps},
	{"release", true, func(tb testing.TB, v cgroup.Version, r *rand.Rand) *model {
		tb.Helper()
		mo := plainNode(nil)(tb, v, r)
		if r.IntN(2) == 0 {
			mo.from = observing{}
		}
		mo.keep()
		return mo
	}, func(tr *tracked, r *rand.Rand) {
		playSteps(tr, r)
		tr.release()
	}},
	{"unread", true, plainNode(func(mo *model) { mo.proxied = true }), playBlurred},
	{"pools-nri", true, poolNode(nil), playSteps},
	{"pools-cri", true, poolNode(func(mo *model) { mo.proxied = true }), playSteps},
	{"pools-bypass", true, poolNode(func(mo *model) { mo.from = observing{} }), playSteps},
	{"pools-resizes", true, poolNode(func(mo *model) { mo.once = true }), playResizes(4, 8, 13)},
	{"pools-resizes-cri", true, poolNode(func(mo *model) { mo.once, mo.proxied = true, true }), playResizes(4, 8, 13)},
	{"pools-records", true, anyNode, func(tr *tracked, r *rand.Rand) {
		playResizes(0, 0)(tr, r)
		for _, tr.mo.unsaved = range []bool{false, true} {
			tr.text.AddLine("restart, checkpoint lost: %t", tr.mo.unsaved)
			tr.mo.restart()
			tr.note()
		}
	}},
	{"pools-unread", true, poolNode(func(mo *model) { mo.proxied, mo.once = true, true }), playBlurred},
	{"pools-hotplug", true, poolNode(nil), playHotplug},
	{"partitions", false, func(tb testing.TB, v cgroup.Version, r *rand.Rand) *model {
		tb.Helper()
		mo := plainNode(nil)(tb, v, r)
		mo.journal = &memory{}
		mo.proxied = r.IntN(2) == 0
		return parted(mo)
	}, func(tr *tracked, r *rand.Rand) {
		playSteps(tr, r)
		tr.release()
	}},
	{"pools-partitions", false, func(tb testing.TB, v cgroup.Version, r *rand.Rand) *model {
		tb.Helper()
		mo := newPooled(tb, v, faults{}, 1+2*r.IntN(100))
		mo.journal = &memory{}
		mo.proxied = r.IntN(2) == 0
		return parted(mo)
	}, playSteps},
}

// perGroup is how many histories are on one line of the golden file.
const perGroup = 20

// TestRecorded plays random histories with fixed seeds. It compares every answer, kernel write,
// record, checkpoint and journal entry with the recorded ones.
func TestRecorded(t *testing.T) {
	t.Parallel()
	book := recorded.Open(t, "testdata/histories.sha256")
	for _, k := range recordedKinds {
		for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
			if v == cgroup.V1 && !k.v1 {
				continue
			}
			for group := range 2 {
				name := fmt.Sprintf("%s %s %d", v, k.name, group)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					var texts []*recorded.Text
					for i := range perGroup {
						texts = append(texts, k.record(t, v, uint64(group*perGroup+i)))
					}
					book.AddItem(t, name, texts...)
				})
			}
		}
	}
}

// record plays one history.
func (k *recordedKind) record(t testing.TB, v cgroup.Version, seed uint64) *recorded.Text {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 16))
	tr := &tracked{t: t, text: &recorded.Text{}, mo: k.make(t, v, r)}
	tr.mo.seen = func(ev *lifecycle.Event, ans conductor.Answer, err error) {
		tr.text.AddAnswer(ev, ans, err)
		tr.note()
	}
	tr.text.RecordWrites(tr.mo.kernel)
	k.play(tr, r)
	tr.end()
	return tr.text
}

// tracked is a model that records everything.
type tracked struct {
	t    testing.TB
	mo   *model
	text *recorded.Text
	of   *conductor.Conductor // the journal was read up to seq
	seq  uint64
}

// note records what is new in the journal and the checkpoint.
func (tr *tracked) note() {
	if tr.of != tr.mo.con {
		tr.of, tr.seq = tr.mo.con, 0
	}
	events, _ := tr.of.Journal().Since(tr.seq)
	if n := len(events); n > 0 {
		tr.seq = events[n-1].Seq
	}
	tr.text.AddEvents(events)
	tr.text.AddCheckpoint(tr.of.Checkpoint().Text())
}

// end records the reports for users, and the originals that a release would restore.
func (tr *tracked) end() {
	tr.note()
	tr.text.AddJSON("status", nodeview.Status(tr.mo.con))
	for _, p := range tr.mo.pods {
		told, _ := nodeview.Explain(tr.mo.con, p.Namespace, p.Name, "")
		tr.text.AddJSON("explain", told)
	}
	if tr.mo.journal != nil {
		// The lines of one batch have no fixed order.
		lines := strings.Split(strings.TrimSpace(tr.mo.journal.String()), "\n")
		slices.Sort(lines)
		tr.text.AddJSON("originals", lines)
	}
	tr.text.AddJSON("cpusets", tr.mo.cpusets())
}

// play plays steps one by one.
func (tr *tracked) play(history []step) {
	for _, s := range history {
		tr.text.AddLine("step %d %d %d", s.Do, s.A, s.B)
		play(tr.mo, []step{s})
		tr.note()
	}
}

// release restores everything.
func (tr *tracked) release() {
	policy := tr.mo.policy
	policy.Hooks, policy.PlacementOn = nil, false
	tr.text.AddJSON("released", tr.mo.con.Release(tr.t.Context(), policy))
}

func playSteps(tr *tracked, r *rand.Rand) { tr.play(someSteps(r)) }

func someSteps(r *rand.Rand) []step {
	history := make([]step, 5+r.IntN(56))
	for i := range history {
		history[i] = step{r.IntN(16), r.IntN(100), r.IntN(100)}
	}
	return history
}

// playResizes is what resizes draws.
func playResizes(others ...int) func(tr *tracked, r *rand.Rand) {
	return func(tr *tracked, r *rand.Rand) {
		kinds := append(others[:len(others):len(others)], 0, 0, 0, 7, 11, 11, 11, 11, 11, 11, 11)
		history := make([]step, 5+r.IntN(56))
		for i := range history {
			history[i] = step{kinds[r.IntN(len(kinds))], r.IntN(100), 1 + r.IntN(99)}
		}
		tr.play(history)
	}
}

// playBlurred starts an agent at a runtime that cannot describe some of its containers.
func playBlurred(tr *tracked, r *rand.Rand) {
	mo := tr.mo
	playSteps(tr, r)
	b := &undescribed{pods: map[string]bool{}, ctrs: map[string]bool{}, parents: r.IntN(2) == 0}
	for _, c := range mo.live() {
		b.ctrs[c.ID] = r.IntN(2) == 0
		b.pods[c.pod.ID] = b.pods[c.pod.ID] || r.IntN(4) == 0
	}
	mo.unsaved = r.IntN(2) == 0
	mo.hideDescriptions = b.blur(mo)
	mo.restart()
	mo.hideDescriptions = nil
	tr.play([]step{{0, r.IntN(100), r.IntN(100)}, {0, r.IntN(100), r.IntN(100)}})
	b.reread(mo)
	mo.restart()
}

// playHotplug takes CPUs offline and online, with restarts of the agent between.
func playHotplug(tr *tracked, r *rand.Rand) {
	mo := tr.mo
	playSteps(tr, r)
	offline := r.Perm(7)[:r.IntN(6)]
	for i := range offline {
		offline[i]++
	}
	for _, off := range [][]int{offline, nil} {
		tr.text.AddLine("offline %v", off)
		mo.plug(off)
		tr.note()
		if r.IntN(2) == 0 {
			mo.restart()
		}
	}
}

func plainNode(change func(*model)) func(testing.TB, cgroup.Version, *rand.Rand) *model {
	return func(t testing.TB, v cgroup.Version, _ *rand.Rand) *model {
		t.Helper()
		mo := newModel(t, v, faults{})
		if change != nil {
			change(mo)
		}
		return mo
	}
}

func poolNode(change func(*model)) func(testing.TB, cgroup.Version, *rand.Rand) *model {
	return func(tb testing.TB, v cgroup.Version, r *rand.Rand) *model {
		tb.Helper()
		mo := newPooled(tb, v, faults{}, r.IntN(200))
		if change != nil {
			change(mo)
		}
		return mo
	}
}

// anyNode is a node of an odd machine.
func anyNode(t testing.TB, v cgroup.Version, r *rand.Rand) *model {
	t.Helper()
	nodes := []int{1, 2, 3, 4, 8}[r.IntN(5)]
	m := oddMachine(nodes, max(4, nodes)+r.IntN(9), r.IntN(2) == 0, r.Uint64N(1000))
	mo := newPooledOn(t, m, v, faults{}, r.IntN(200))
	mo.once, mo.unlisted = true, true
	return mo
}
