package packing

import (
	"fmt"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
)

// allocator chooses CPUs. It gets the requests in the order of a history and remembers its grants.
type allocator interface {
	// own chooses for a new owner; ok is false if it refuses.
	own(e event) (p placed, ok bool)
	// resize chooses again for an owner that requests another number of CPUs.
	resize(e event) (cpus topology.Set, ok bool)
	// share adds a container that owns nothing, end removes any container.
	share(e event)
	end(id int)
	// pools returns the shared pools.
	pools() []pool
}

// placed is an owner's placement.
type placed struct {
	cpus topology.Set
	// mems are the NUMA nodes to which its memory is confined, by index; nil for none.
	mems []bool
}

// pool is a set of CPUs that containers share.
type pool struct {
	name string
	cpus topology.Set
	// need is the number of CPUs that they request. node is the index of the NUMA node to which they are bound, -1 for
	// none.
	need, node int
}

// score has the counts.
type score struct {
	owners, resized, refused int
	avoidable                [criteria]int
	// mebi is all memory that owners got, far its cost, and nearest the least possible cost.
	mebi, far, nearest int
	// moves is how often pools lost CPUs to other containers, lost the number of CPUs.
	moves, lost, events int
}

func (s *score) add(o score) {
	s.owners, s.resized, s.refused = s.owners+o.owners, s.resized+o.resized, s.refused+o.refused
	for i := range s.avoidable {
		s.avoidable[i] += o.avoidable[i]
	}
	s.mebi, s.far, s.nearest = s.mebi+o.mebi, s.far+o.far, s.nearest+o.nearest
	s.moves, s.lost, s.events = s.moves+o.moves, s.lost+o.lost, s.events+o.events
}

// finding is an avoidably bad placement.
type finding struct {
	at        int // index of the event
	avoidable [criteria]bool
	text      string
}

// play is the state of a history during its play.
type play struct {
	tb     testing.TB
	m      *topology.Machine
	a      allocator
	owners map[int]*owner
	left   []int // MiB by NUMA node
	from   int   // the first event whose choice is judged
	score  score
	found  []finding
}

type owner struct {
	asked event
	cpus  topology.Set
	parts []part
}

const mebiOfGib = 1024

// playAll plays a history and judges every choice.
func playAll(tb testing.TB, m *topology.Machine, a allocator, h history) *play {
	tb.Helper()
	return playFrom(tb, m, a, h, 0)
}

// playFrom plays a history and judges the choices from an event on.
func playFrom(tb testing.TB, m *topology.Machine, a allocator, h history, from int) *play {
	tb.Helper()
	p := &play{tb: tb, m: m, a: a, owners: map[int]*owner{}, from: from}
	for _, n := range m.Nodes {
		p.left = append(p.left, int(n.Memory>>20))
	}
	for i, e := range h.events {
		before := a.pools()
		p.event(i, e, before)
		p.pools(before, a.pools(), e)
	}
	p.score.events = len(h.events)
	return p
}

func (p *play) event(at int, e event, before []pool) {
	o := p.owners[e.id]
	switch {
	case e.kind == own:
		p.own(at, e, before)
	case e.kind == resize && o != nil:
		p.resize(at, e, o, before)
	case e.kind == share:
		p.a.share(e)
	case e.kind == end && o != nil:
		for _, part := range o.parts {
			if part.node >= 0 {
				p.left[part.node] += part.mebi
			}
		}
		delete(p.owners, e.id)
		p.a.end(e.id)
	case e.kind == end:
		p.a.end(e.id)
	}
}

// free returns the CPUs without an owner.
func (p *play) free() topology.Set {
	free := p.m.Online()
	for _, o := range p.owners {
		free = free.Minus(o.cpus)
	}
	return free
}

// question returns the present request to an allocator.
func (p *play) question(before []pool) *question {
	q := &question{m: p.m, free: p.free(), device: -1, left: slices.Clone(p.left), kept: make([]int, len(p.m.Nodes))}
	for _, b := range before {
		if b.node >= 0 {
			q.kept[b.node] += b.need
		}
	}
	return q
}

func (p *play) own(at int, e event, before []pool) {
	q := p.question(before)
	q.more, q.whole, q.device, q.mebi = e.cpus, e.whole, e.device, e.gibs*mebiOfGib
	got, ok := p.a.own(e)
	if !ok {
		free := q.free
		if q.whole {
			free = q.wholeCores(free)
		}
		if free.Len() >= q.more {
			p.score.refused++
		}
		return
	}
	p.check(at, e, got.cpus, q.free, e.cpus)
	p.score.owners++
	p.judge(at, e, q, got)
	o := &owner{asked: e, cpus: got.cpus, parts: q.fill(q.touched(got.cpus), got.mems)}
	p.owners[e.id] = o
	for _, part := range o.parts {
		if part.node >= 0 {
			p.left[part.node] -= part.mebi
		}
	}
}

func (p *play) resize(at int, e event, o *owner, before []pool) {
	if e.cpus == o.cpus.Len() {
		return
	}
	q := p.question(before)
	q.device, q.whole = o.asked.device, o.asked.whole
	if q.have, q.more = o.cpus, e.cpus-o.cpus.Len(); q.more < 0 { // the owner keeps its best CPUs
		q.free, q.have, q.more = o.cpus, topology.Set{}, e.cpus
		clear(q.kept)
	}
	got, ok := p.a.resize(e)
	if !ok {
		if q.free.Len() >= q.more {
			p.score.refused++
		}
		return
	}
	p.check(at, e, got.Minus(q.have), q.free, q.more)
	if !got.Contains(q.have) {
		p.tb.Fatalf("event %d, %s: an owner that grows loses CPUs %s", at, e, p.m.Format(q.have.Minus(got)))
	}
	p.score.resized++
	p.judge(at, e, q, placed{cpus: got})
	o.cpus = got
}

// check fails the test for an invalid answer.
func (p *play) check(at int, e event, got, free topology.Set, n int) {
	if got.Len() != n || !free.Contains(got) {
		p.tb.Fatalf("event %d, %s: %s of free %s are not %d", at, e, p.m.Format(got), p.m.Format(free), n)
	}
}

// judge compares a choice with all possible fits.
func (p *play) judge(at int, e event, q *question, got placed) {
	if at < p.from {
		return
	}
	c := q.price(got.cpus, got.mems)
	worse, nearest := q.avoidable(c)
	p.score.mebi, p.score.far, p.score.nearest = p.score.mebi+q.mebi, p.score.far+c[memory], p.score.nearest+nearest
	text := ""
	for i, yes := range worse {
		if yes {
			p.score.avoidable[i]++
			text += " " + criterionNames[i]
		}
	}
	if text != "" {
		p.found = append(p.found, finding{at, worse, fmt.Sprintf("event %d, %s: avoidable%s: CPUs %s of free %s, beside %s",
			at, e, text, p.m.Format(got.cpus), p.m.Format(q.free), p.m.Format(q.have))})
	}
}

var criterionNames = [criteria]string{"socket", "node", "device", "memory", "kind", "L3", "core"}

// pools counts the pools that lost CPUs, except those that a container joined or left.
func (p *play) pools(before, after []pool, e event) {
	for _, b := range before {
		i := slices.IndexFunc(after, func(a pool) bool { return a.name == b.name })
		if i < 0 || after[i].need != b.need {
			continue
		}
		if lost := b.cpus.Minus(after[i].cpus); !lost.Empty() {
			p.score.moves, p.score.lost = p.score.moves+1, p.score.lost+lost.Len()
		}
	}
}
