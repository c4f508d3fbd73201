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

// Fault is the fault of one call. The zero value is no fault.
type Fault struct {
	Kind string // the name in the counts
	Err  error  // the error that the call returns
	// Short means that a write writes only half of its data. The write returns Err, which may be nil.
	Short bool
	// Late means that the call does its work before it fails.
	Late bool
	// Broken means that the call closes the connection.
	Broken bool
	// Delay delays the call.
	Delay time.Duration
}

// Plan chooses the calls that fail, and counts them.
type Plan struct {
	// decide returns the fault of the call with the number n, counted from 0. The parameter kinds
	// lists the possible faults of this call. The result is one of these, or the zero Fault if the call does not fail.
	decide func(n int, call string, kinds []Fault) Fault

	mu       sync.Mutex
	disabled bool                      // no call fails, and no call is counted
	calls    int                       // the number of calls
	faults   int                       // the number of calls with a fault
	counts   map[string]map[string]int // the number of calls with a fault, by the call's name and the kind of the fault
}

// FailCalls returns a plan in which the calls with the numbers from first to last fail, counted from 0. Each kind of
// call has a list of possible faults. faultIndex selects the fault in this list, modulo the length of the list.
func FailCalls(first, last, faultIndex int) *Plan {
	return &Plan{decide: func(at int, _ string, kinds []Fault) Fault {
		if at < first || at > last {
			return Fault{}
		}
		return kinds[faultIndex%len(kinds)]
	}}
}

// FailRandomly returns a plan in which calls fail at random. The keys of oneIn are prefixes of call names. On average,
// one of oneIn[key] calls with this prefix fails. If several keys match a call, the longest key counts.
func FailRandomly(seed uint64, oneIn map[string]int) *Plan {
	rng := rand.New(rand.NewPCG(seed, 7))
	return &Plan{decide: func(_ int, call string, kinds []Fault) Fault {
		rate, length := 0, -1
		for name, n := range oneIn {
			if strings.HasPrefix(call, name) && len(name) > length {
				rate, length = n, len(name)
			}
		}
		if rate == 0 || rng.IntN(rate) > 0 {
			return Fault{}
		}
		return kinds[rng.IntN(len(kinds))]
	}}
}

// next chooses the fault of one call and counts it.
func (p *Plan) next(call string, kinds []Fault) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.disabled {
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

// Off stops all faults until On is called.
func (p *Plan) Off() { p.setDisabled(true) }

// On starts the faults again.
func (p *Plan) On() { p.setDisabled(false) }

// setDisabled stops all faults if off is true, and starts them again if off is false.
func (p *Plan) setDisabled(off bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disabled = off
}

// Calls returns the number of calls. It does not count calls between Off and On.
func (p *Plan) Calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// Faults returns the number of calls that failed.
func (p *Plan) Faults() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// Add adds the counts of another plan to the counts of this plan.
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

// String returns the counts by call and kind.
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
