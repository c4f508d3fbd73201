package faults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Fault is what becomes of one call; the zero value lets it pass.
type Fault struct {
	Kind string // for the counts
	Err  error
	// Short has a write take half of its data, without an error where Err is nil.
	Short bool
	// Late fails the call after it did what it should.
	Late bool
	// Broken ends a connection.
	Broken bool
	// Delay passes first.
	Delay time.Duration
}

// Plan says which calls fail, and counts them.
type Plan struct {
	decide func(n int, call string, kinds []Fault) Fault

	mu     sync.Mutex
	off    bool
	calls  int
	faults int
	counts map[string]map[string]int // by call and kind
}

// Nth has the n-th call fail, counted from 0, and all after it up to the last
// one, with one of the faults that its kind of call has: the which-th of them.
func Nth(n, last, which int) *Plan {
	return &Plan{decide: func(at int, _ string, kinds []Fault) Fault {
		if at < n || at > last {
			return Fault{}
		}
		return kinds[which%len(kinds)]
	}}
}

// Random has a share of all calls fail: one in so many, by the beginning of a call's
// name, of which the longest that fits counts.
func Random(seed uint64, oneIn map[string]int) *Plan {
	rng := rand.New(rand.NewPCG(seed, 7))
	return &Plan{decide: func(_ int, call string, kinds []Fault) Fault {
		most, length := 0, -1
		for name, n := range oneIn {
			if strings.HasPrefix(call, name) && len(name) > length {
				most, length = n, len(name)
			}
		}
		if most == 0 || rng.IntN(most) > 0 {
			return Fault{}
		}
		return kinds[rng.IntN(len(kinds))]
	}}
}

// next decides about one call, and counts it.
func (p *Plan) next(call string, kinds []Fault) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off {
		return Fault{}
	}
	f := p.decide(p.calls, call, kinds)
	p.calls++
	if f.Kind == "" {
		return f
	}
	if p.counts == nil {
		p.counts = map[string]map[string]int{}
	}
	if p.counts[call] == nil {
		p.counts[call] = map[string]int{}
	}
	p.counts[call][f.Kind]++
	p.faults++
	return f
}

// Off lets all calls pass from now on; On has them fail again.
func (p *Plan) Off() { p.set(true) }

// On has calls fail again.
func (p *Plan) On() { p.set(false) }

func (p *Plan) set(off bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off = off
}

// Calls is how many calls were made while the plan was on.
func (p *Plan) Calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// Faults is how many of them failed.
func (p *Plan) Faults() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// Add takes in the counts of another plan.
func (p *Plan) Add(o *Plan) {
	o.mu.Lock()
	counts, calls, faults := o.counts, o.calls, o.faults
	o.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts == nil {
		p.counts = map[string]map[string]int{}
	}
	for call, kinds := range counts {
		if p.counts[call] == nil {
			p.counts[call] = map[string]int{}
		}
		for kind, n := range kinds {
			p.counts[call][kind] += n
		}
	}
	p.calls, p.faults = p.calls+calls, p.faults+faults
}

// String prints the counts by call and kind.
func (p *Plan) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults in %d calls\n", p.faults, p.calls)
	for _, call := range slices.Sorted(maps.Keys(p.counts)) {
		sum := 0
		var kinds []string
		for _, kind := range slices.Sorted(maps.Keys(p.counts[call])) {
			sum += p.counts[call][kind]
			kinds = append(kinds, fmt.Sprintf("%s %d", kind, p.counts[call][kind]))
		}
		fmt.Fprintf(&b, "  %-16s %5d: %s\n", call, sum, strings.Join(kinds, ", "))
	}
	return b.String()
}
