package bench

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What the benchmarks measure. The defaults take less than three minutes on two CPUs.
var (
	existing = numbers{0, 100, 1000}
	rounds   = flag.Int("rounds", 1000, "number of containers that each arm of the NRI benchmark creates, for each number of existing ones")
	policy   = flag.String("policy", "none", "Trimtab's placement.policy in the NRI benchmark: none or pools")
	attaches = flag.Int("attaches", 8, "number of attachments of each arm that measure Synchronize")
)

// budget bounds the time of one part on a slow or busy machine.
const budget = 35 * time.Second

// numbers is a flag with a list of numbers.
type numbers []int

func (n *numbers) String() string { return strings.Trim(fmt.Sprint(*n), "[]") }

// Set parses a list such as "0 1000".
func (n *numbers) Set(text string) error {
	*n = nil
	for _, f := range strings.Fields(text) {
		i, err := strconv.Atoi(f)
		if err != nil {
			return err
		}
		*n = append(*n, i)
	}
	return nil
}

// owners is the number of existing containers that own a CPU. As many CPUs are left for new ones.
const owners, firstFree = 32, 40

// newTree makes a directory for cgroup files, in /dev/shm if that exists.
func newTree(b *testing.B) tree {
	b.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "trimtab-bench-")
	if err != nil {
		return tree(b.TempDir())
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	t := tree(dir)
	for _, d := range []string{dir, dir + "/kubepods.slice", dir + "/kubepods.slice/kubepods-besteffort.slice", dir + "/kubepods.slice/kubepods-burstable.slice"} {
		if err := t.fill(d, nil, false); err != nil {
			b.Fatal(err)
		}
	}
	return t
}

// population makes n pods: a tenth owns a CPU while there are free ones, and the rest is batch and shared in equal
// parts.
func population(n int) []*unit {
	var all []*unit
	own := min(n/10, owners)
	for i := range n {
		switch {
		case i < own:
			all = append(all, newUnit(i, exclusive, i))
		default:
			all = append(all, newUnit(i, class(i%2), 0))
		}
	}
	return all
}

// settled lets Trimtab create a population and returns its host. Every container then has its record and values, as
// after a restart.
func settled(b *testing.B, n int) *host {
	b.Helper()
	h := openHost(b, trimtab, newTree(b))
	h.attach(b)
	for _, u := range population(n) {
		h.begin(b, u)
		h.units = append(h.units, u)
	}
	h.detach()
	return h
}

// BenchmarkCreateContainer measures one call at a time, with each plugin in turn.
func BenchmarkCreateContainer(b *testing.B) {
	s := table.section("CreateContainer, one at a time, arms in turn: every container requests something, 1 of 10 an exclusive CPU",
		"existing", "arm", "calls", "p50", "p99", "p50 ratio", "p99 ratio", "answer B", "updates of others per create")
	ends := table.section("The other calls for a container", "existing", "arm", "StartContainer p50", "p99", "stop and remove (4 calls) p50", "p99")
	own := table.section("Trimtab's containers with an exclusive CPU: the CPU leaves all other cpusets before the answer",
		"existing", "calls", "create p50", "p99", "others narrowed", "per narrowed container", "runtime's copies updated later")
	memory := table.section("Memory of the Trimtab process, KiB", "existing", "when", "resident", "anonymous part", "file-backed", "peak")
	own.note = "Each narrowed container: one write, one check that it is in force. Stored copies follow one by one, paced."
	s.note = fmt.Sprintf("Ratios are to %q; %q is the noise of this very run.", constant, again)
	memory.note = "The process is this test binary; the file-backed part is mostly its code."
	for _, n := range existing {
		createAt(b, n, s, ends, own, memory)
	}
}

// createAt measures all arms with n existing containers.
func createAt(b *testing.B, n int, s, ends, own, memory *section) {
	b.Helper()
	hosts := map[string]*host{trimtab: settled(b, n)}
	for _, arm := range arms {
		if arm != trimtab {
			hosts[arm] = openHost(b, arm, "")
			hosts[arm].units = hosts[trimtab].units
		}
		hosts[arm].attach(b)
	}
	time.Sleep(time.Second) // the agent becomes idle
	m := hosts[trimtab].memory(b)
	memory.row(n, "after Synchronize", m["VmRSS"], m["RssAnon"], m["RssFile"], m["VmHWM"])
	calls := hosts[trimtab].calls.Load()
	lives := map[string][]life{}
	start := time.Now()
	for round := range *rounds {
		if time.Since(start) > budget {
			break // the machine is busy with other work
		}
		for i := range arms {
			arm := arms[(round+i)%len(arms)]
			u := newUnit(100000+round, classOf(round), firstFree+round/10%16)
			l := hosts[arm].begin(b, u)
			l.end = hosts[arm].end(b, u)
			if round >= 20 { // the first are warm-up
				lives[arm] = append(lives[arm], l)
			}
		}
	}
	calls = hosts[trimtab].calls.Load() - calls
	base := times(lives[constant], every)
	for _, arm := range arms {
		createRow(s, n, arm, lives[arm], every, base)
		l := lives[arm]
		start, end := pick(l, func(l life) time.Duration { return l.start }), pick(l, func(l life) time.Duration { return l.end })
		ends.row(n, arm, start.at(50), start.at(99), end.at(50), end.at(99))
	}
	createRow(s, n, "trimtab, without the exclusive", lives[trimtab], sharing, times(lives[constant], sharing))
	m = hosts[trimtab].memory(b)
	memory.row(n, "after all creates", m["VmRSS"], m["RssAnon"], m["RssFile"], m["VmHWM"])
	ownRow(own, n, lives[trimtab], calls)
	ratio := over(times(lives[trimtab], sharing).at(50), times(lives[constant], sharing).at(50))
	b.ReportMetric(ratio, fmt.Sprintf("p50-ratio-at-%d", n))
	for _, h := range hosts {
		h.detach()
	}
}

// classOf mixes the classes of new containers: one of ten owns a CPU.
func classOf(i int) class {
	if i%10 == 0 {
		return exclusive
	}
	return class(i % 2)
}

func every(int) bool     { return true }
func sharing(i int) bool { return classOf(i) != exclusive }

func pick(all []life, of func(life) time.Duration) sample {
	var s sample
	for _, l := range all {
		s = append(s, of(l))
	}
	return s
}

// times returns the creation times of the containers that which selects. The omitted warm-up was a multiple of ten, so
// the mix is the same.
func times(all []life, which func(int) bool) sample {
	var s sample
	for i, l := range all {
		if which(i) {
			s = append(s, l.create)
		}
	}
	return s
}

func createRow(s *section, n int, arm string, all []life, which func(int) bool, base sample) {
	t := times(all, which)
	bytes, others := 0, 0
	for _, l := range all {
		bytes += l.bytes
		others += l.others
	}
	s.row(n, arm, len(t), t.at(50), t.at(99), over(t.at(50), base.at(50)), over(t.at(99), base.at(99)),
		bytes/len(all), float64(others)/float64(len(all)))
}

func ownRow(s *section, n int, all []life, later int64) {
	t := times(all, func(i int) bool { return !sharing(i) })
	rest := times(all, sharing)
	narrowed := n - min(n/10, owners)
	per := "-"
	if narrowed > 0 {
		per = microseconds((t.at(50) - rest.at(50)) / time.Duration(narrowed))
	}
	s.row(n, len(t), t.at(50), t.at(99), narrowed, per, later)
}

// BenchmarkSynchronize measures how long the runtime waits for a plugin that attaches, with a new process each time.
func BenchmarkSynchronize(b *testing.B) {
	const n = 1000
	s := table.section(fmt.Sprintf("Synchronize of %d containers, new processes in turn", n), "arm", "calls", "p50", "slowest", "p50 ratio")
	s.note = "\"first start\": nothing was decided before, so everything is written. Otherwise containers carry their records, as after a restart."
	restart, first := settled(b, n), openHost(b, trimtab, newTree(b))
	first.units = population(n)
	stubs := map[string]*host{}
	for _, arm := range []string{empty, constant, again} {
		stubs[arm] = openHost(b, arm, "")
		stubs[arm].units = restart.units
	}
	got := map[string]sample{}
	start := time.Now()
	order := []string{empty, constant, trimtab, again, "trimtab, first start"}
	for round := range *attaches {
		if time.Since(start) > budget {
			break
		}
		for i := range order {
			arm := order[(round+i)%len(order)]
			h := stubs[arm]
			switch {
			case arm == trimtab:
				h = restart
			case h == nil:
				h = first
				for _, u := range h.units {
					if err := h.tree.makePod(u); err != nil {
						b.Fatal(err)
					}
					if err := h.tree.makeContainer(u); err != nil {
						b.Fatal(err)
					}
				}
			}
			h.attach(b)
			got[arm] = append(got[arm], h.sync)
			h.detach()
		}
	}
	base := got[empty].at(50)
	for _, arm := range order {
		s.row(arm, len(got[arm]), got[arm].at(50), slices.Max(got[arm]), over(got[arm].at(50), base))
	}
	b.ReportMetric(over(got[trimtab].at(50), base), "ratio-to-empty")
}
