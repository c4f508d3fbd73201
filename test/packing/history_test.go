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

// kind is the kind of an event.
type kind string

// The kinds: an owner is created, an owner is resized, a container of a shared pool is created, and either of them
// ends.
const (
	own    kind = "own"
	resize kind = "resize"
	share  kind = "share"
	end    kind = "end"
)

// event is one step of a history. It has the request and not the result, so that every allocator can play it.
type event struct {
	kind kind
	id   int
	// Of an owner: the number of CPUs, the memory, and the NUMA node of its device, -1 for none.
	cpus, gibs, device int
	// bound to NUMA nodes, with memory; only whole cores; lent to reclaimed containers.
	bound, whole, lent bool
	// Of a container that shares: its request and the name of its pool. It can be bound, too.
	milli int
	pool  string
}

// history is a list of events for one shape.
type history struct {
	shape  string
	events []event
}

// String returns an event in the format of history files.
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

// parseEvent parses the format of String.
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

// String returns a history, one event per line.
func (h history) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "shape %s\n", h.shape)
	for _, e := range h.events {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

// parseHistory parses a history. Lines that begin with # are comments.
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

// generator draws a history. It counts requests as if all were granted.
type generator struct {
	rng     *rand.Rand
	m       *topology.Machine
	events  []event
	live    []event // owners and sharing containers
	next    int
	cpus    int // CPUs that may be requested
	shared  int // of these, by sharing containers
	gibs    int // memory that owners may request
	nodes   int // NUMA nodes with CPUs
	perCPU  int // GiB a CPU
	uniform bool
}

// sizes has the numbers of CPUs that owners request, the usual ones more often.
var sizes = []int{1, 1, 2, 2, 2, 2, 3, 4, 4, 4, 4, 5, 6, 6, 8, 8, 8, 10, 12, 16, 16, 24, 40}

// poolNames are the pools of sharing containers; "bound" is the default pool of a NUMA node.
var poolNames = []string{"", "", "", "a", "b", "bound"}

// sharedPercent is the part of all CPUs that sharing containers request, by seed. If it is half, they are created
// first.
var sharedPercent = []int{50, 15, 30}

// newHistory draws the history of a seed. Pods are created until they request full percent of the CPUs. Then pods end,
// grow and shrink, and new ones replace them.
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
	for g.shared == n/2 { // the pools exist before the first owner
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

// fullOf returns the number of CPUs that the pods request together at the end of a history.
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

// asked sums the requests of all pods: CPUs of owners and of sharing containers, rounded up, and memory.
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

// fill adds pods until the machine is full: sharing containers have their part, and several owners in a row were too
// large for the rest.
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
	// Usually half of a CPU's share of the memory, and sometimes far more.
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

// step lets an owner end, grow or shrink.
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
