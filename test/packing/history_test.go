package packing

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// kind is what an event of a history is.
type kind string

// The kinds: an owner comes, an owner's number of CPUs changes, a container comes that
// shares a pool, and either of them ends.
const (
	own    kind = "own"
	resize kind = "resize"
	share  kind = "share"
	end    kind = "end"
)

// event is one step of a history. It says what is asked for and nothing of what came
// of it, so that every allocator can play it.
type event struct {
	kind kind
	id   int
	// Of an owner: how many CPUs, how much memory, and at which NUMA node its card is,
	// -1 for none.
	cpus, gibs, device int
	// bound to NUMA nodes, with memory; whole cores and nothing else; lent to reclaimed
	// containers.
	bound, whole, lent bool
	// Of one that shares: its request, and the name of its pool. It can be bound, too.
	milli int
	pool  string
}

// history is a play for one shape.
type history struct {
	shape  string
	events []event
}

// String writes an event as history files have it.
func (e event) String() string {
	text := fmt.Sprintf("%s %d", e.kind, e.id)
	add := func(yes bool, more string) {
		if yes {
			text += " " + more
		}
	}
	add(e.cpus > 0, fmt.Sprintf("cpus=%d", e.cpus))
	add(e.gibs > 0, fmt.Sprintf("gib=%d", e.gibs))
	add(e.kind == own && e.device >= 0, fmt.Sprintf("device=%d", e.device))
	add(e.milli > 0, fmt.Sprintf("milli=%d", e.milli))
	add(e.pool != "", "pool="+e.pool)
	add(e.bound, "bound")
	add(e.whole, "whole")
	add(e.lent, "lent")
	return text
}

// parseEvent reads what String writes.
func parseEvent(line string) (event, error) {
	words := strings.Fields(line)
	e := event{device: -1}
	if len(words) < 2 {
		return e, fmt.Errorf("event %q: write a kind and a number", line)
	}
	e.kind = kind(words[0])
	var err error
	if e.id, err = strconv.Atoi(words[1]); err != nil {
		return e, fmt.Errorf("event %q: %w", line, err)
	}
	numbers := map[string]*int{"cpus": &e.cpus, "gib": &e.gibs, "device": &e.device, "milli": &e.milli}
	flags := map[string]*bool{"bound": &e.bound, "whole": &e.whole, "lent": &e.lent}
	for _, word := range words[2:] {
		name, value, _ := strings.Cut(word, "=")
		switch {
		case name == "pool":
			e.pool = value
		case flags[name] != nil:
			*flags[name] = true
		case numbers[name] != nil:
			if *numbers[name], err = strconv.Atoi(value); err != nil {
				return e, fmt.Errorf("event %q: %w", line, err)
			}
		default:
			return e, fmt.Errorf("event %q: %q is not known", line, word)
		}
	}
	return e, nil
}

// String writes a history, one event a line.
func (h history) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "shape %s\n", h.shape)
	for _, e := range h.events {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

// parseHistory reads a history. Lines that begin with # are for people.
func parseHistory(text string) (history, error) {
	var h history
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if name, is := strings.CutPrefix(line, "shape "); is {
			h.shape = name
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		e, err := parseEvent(line)
		if err != nil {
			return h, err
		}
		h.events = append(h.events, e)
	}
	return h, nil
}

// generator draws a history. It counts what was asked for as if everybody got it.
type generator struct {
	rng     *rand.Rand
	m       *topology.Machine
	events  []event
	live    []event // owners and those that share
	next    int
	cpus    int // how many may be asked for
	shared  int // how many of them by those that share
	gibs    int // how much memory owners may ask for
	nodes   int // NUMA nodes with CPUs
	perCPU  int // GiB a CPU
	uniform bool
}

// sizes are how many CPUs owners ask for, the usual ones more often.
var sizes = []int{1, 1, 2, 2, 2, 2, 3, 4, 4, 4, 4, 5, 6, 6, 8, 8, 8, 10, 12, 16, 16, 24, 40}

// poolNames are the pools of those that share; "bound" is the default one of a NUMA node.
var poolNames = []string{"", "", "", "a", "b", "bound"}

// sharedPercent is the part of all CPUs that sharing containers request, by seed. Where it is
// half, they come first.
var sharedPercent = []int{50, 15, 30}

// newHistory draws the history of a seed: pods come until so many percent of the CPUs
// are asked for; from then on some go, grow and shrink, and others take their place.
func newHistory(s shape, m *topology.Machine, full, steps int, seed uint64) history {
	g := generator{rng: rand.New(rand.NewPCG(seed, uint64(full))), m: m, uniform: true}
	var bytes uint64
	for _, n := range m.Nodes {
		if !n.CPUs.Empty() {
			g.nodes++
			bytes += n.Memory
		}
	}
	for _, core := range m.Groups(topology.CoreLevel) {
		g.uniform = g.uniform && core.Len() == 2
	}
	n := m.Online().Len()
	g.cpus, g.shared = n*full/100, n*sharedPercent[seed%uint64(len(sharedPercent))]/100
	g.gibs, g.perCPU = int(bytes/gib)*(full-10)/100, max(1, int(bytes/gib)/n)
	for g.shared == n/2 { // the pools are there before the first owner
		if _, shared, _ := g.asked(); shared >= g.shared {
			break
		}
		g.share()
	}
	g.fill()
	for range steps {
		g.step()
		g.fill()
	}
	return history{shape: s.name, events: g.events}
}

// fullOf is how many CPUs those ask for together that live at the end of a history.
func fullOf(h history) int {
	g := generator{}
	for _, e := range h.events {
		at := slices.IndexFunc(g.live, func(o event) bool { return o.id == e.id })
		switch {
		case at < 0:
			g.live = append(g.live, e)
		case e.kind == resize:
			g.live[at].cpus = e.cpus
		default:
			g.live = slices.Delete(g.live, at, at+1)
		}
	}
	owned, shared, _ := g.asked()
	return owned + shared
}

// asked sums what live ones ask for: CPUs, rounded up, of owners and of the others,
// and memory.
func (g *generator) asked() (owned, shared, gibs int) {
	milli := 0
	for _, e := range g.live {
		owned, gibs, milli = owned+e.cpus, gibs+e.gibs, milli+e.milli
	}
	return owned, (milli + 999) / 1000, gibs
}

func (g *generator) add(e event) {
	g.next++
	e.id = g.next
	g.live, g.events = append(g.live, e), append(g.events, e)
}

// fill adds pods until the machine is as full as it is to be: those that share have
// their part, and several owners in a row were too large for what is left.
func (g *generator) fill() {
	for missed := 0; ; {
		owned, shared, gibs := g.asked()
		full := missed > 8
		if shared < g.shared && (full || g.rng.IntN(3) == 0) {
			g.share()
			continue
		}
		if full {
			return
		}
		e := g.owner()
		if e.cpus > g.cpus-owned-g.shared {
			missed++
			continue
		}
		e.gibs = min(e.gibs, max(1, g.gibs-gibs))
		g.add(e)
	}
}

// owner draws an owner.
func (g *generator) owner() event {
	one := func(of int) bool { return g.rng.IntN(of) == 0 }
	e := event{kind: own, cpus: sizes[g.rng.IntN(len(sizes))], device: -1}
	for e.cpus > g.m.Online().Len()/3 {
		e.cpus = sizes[g.rng.IntN(len(sizes))]
	}
	// Half of all memory a CPU has, as a rule, and sometimes far more.
	e.gibs = max(1, e.cpus*g.perCPU*[]int{1, 1, 2, 2, 3, 6}[g.rng.IntN(6)]/3)
	e.bound, e.lent = one(3), one(6)
	e.whole = one(8) && g.uniform && e.cpus%2 == 0
	if node := g.rng.IntN(g.nodes); one(4) && node%2 == 1 {
		e.device = node
	}
	return e
}

func (g *generator) share() {
	e := event{kind: share, device: -1, milli: 100 + g.rng.IntN(g.m.Online().Len()*20), pool: poolNames[g.rng.IntN(len(poolNames))]}
	if e.bound = e.pool == "bound"; e.bound {
		e.pool = ""
	}
	g.add(e)
}

// step has an owner go, grow or shrink.
func (g *generator) step() {
	at := g.rng.IntN(len(g.live))
	e := g.live[at]
	if e.kind == share && g.rng.IntN(2) == 0 || e.kind == own && g.rng.IntN(4) > 0 || e.whole {
		g.live = slices.Delete(g.live, at, at+1)
		g.events = append(g.events, event{kind: end, id: e.id, device: -1})
		return
	}
	owned, _, _ := g.asked()
	n := max(1, e.cpus+g.rng.IntN(13)-6)
	if e.kind == share || n == e.cpus || n-e.cpus > g.cpus-owned-g.shared {
		return
	}
	g.live[at].cpus = n
	g.events = append(g.events, event{kind: resize, id: e.id, cpus: n, device: -1})
}
