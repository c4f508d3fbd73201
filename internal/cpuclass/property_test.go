package cpuclass_test

import (
	"fmt"
	"maps"
	"path"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cpuclass"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

const modelCPUs = 4

// model is a node with the originals of its files, and the class that each CPU should have.
type model struct {
	node

	base map[string]string
	want map[int]*lifecycle.CPUClass
}

// anyClass draws a class that the hardware can have, or one whose limits contradict each other.
func anyClass(t *rapid.T, name string) *lifecycle.CPUClass {
	freq := rapid.SampledFrom([]lifecycle.Frequency{"", "", "min", "base", "turbo", "900000", "1500000", "3000000"})
	return &lifecycle.CPUClass{
		Name: name, MinFreq: freq.Draw(t, "min"), MaxFreq: freq.Draw(t, "max"),
		Governor:         rapid.SampledFrom([]string{"", "performance", "powersave"}).Draw(t, "governor"),
		EnergyPreference: rapid.SampledFrom([]string{"", "power", "performance"}).Draw(t, "preference"),
		DisabledCStates:  rapid.SampledFrom([][]string{nil, {"C6"}, {"C1", "C6"}, {"POLL"}}).Draw(t, "states"),
	}
}

// kHz is a frequency of this hardware.
func kHz(f lifecycle.Frequency) int {
	if n, known := f.KHz(); known {
		return int(n)
	}
	return map[lifecycle.Frequency]int{"min": 800000, "base": 2000000, "turbo": 3500000}[f]
}

// possible reports whether a class does not contradict itself or the originals.
func (m *model) possible(cpu int, c *lifecycle.CPUClass) bool {
	dir := fmt.Sprintf("cpufreq/policy%d/", cpu)
	low, _ := strconv.Atoi(m.base[dir+"scaling_min_freq"])
	high, _ := strconv.Atoi(m.base[dir+"scaling_max_freq"])
	if c.MinFreq != "" {
		low = kHz(c.MinFreq)
	}
	if c.MaxFreq != "" {
		high = kHz(c.MaxFreq)
	}
	governor := m.base[dir+"scaling_governor"]
	if c.Governor != "" {
		governor = c.Governor
	}
	return low <= high && (governor != "performance" || c.EnergyPreference != "power")
}

// set returns the files that a class sets for a CPU, and those that follow from them.
func set(cpu int, c *lifecycle.CPUClass) map[string]string {
	dir, out := fmt.Sprintf("cpufreq/policy%d/", cpu), map[string]string{}
	if c.MinFreq != "" {
		out[dir+"scaling_min_freq"] = strconv.Itoa(kHz(c.MinFreq))
	}
	if c.MaxFreq != "" {
		out[dir+"scaling_max_freq"] = strconv.Itoa(kHz(c.MaxFreq))
	}
	if c.EnergyPreference != "" {
		out[dir+"energy_performance_preference"] = c.EnergyPreference
	}
	if c.Governor != "" {
		out[dir+"scaling_governor"] = c.Governor
	}
	if c.Governor == "performance" {
		out[dir+"energy_performance_preference"] = "performance"
	}
	for _, name := range c.DisabledCStates {
		out[fmt.Sprintf("cpu%d/cpuidle/state%d/disable", cpu, map[string]int{"POLL": 0, "C1": 1, "C6": 2}[name])] = "1"
	}
	return out
}

// expected are the texts of all files.
func (m *model) expected() map[string]string {
	out := maps.Clone(m.base)
	for cpu, c := range m.want {
		if c == nil || !m.possible(cpu, c) {
			continue
		}
		maps.Copy(out, set(cpu, c))
	}
	return out
}

func (m *model) wanted() (all []cpuclass.WantedClass) {
	for cpu := range modelCPUs {
		if c := m.want[cpu]; c != nil {
			all = append(all, of(*c, cpu))
		}
	}
	return all
}

func (m *model) check(t *rapid.T, when string) {
	if want, got := m.expected(), m.files.Texts(); !maps.Equal(want, got) {
		t.Fatalf("%s: %s", when, cmp.Diff(want, got))
	}
}

// crash applies the classes with an agent that ends after some writes, and starts another.
func (m *model) crash(t *rapid.T) {
	left := rapid.IntRange(0, 6).Draw(t, "writes")
	m.files.Refuse = func(string, string) error {
		if left--; left < 0 {
			panic("the agent is killed")
		}
		return nil
	}
	func() {
		defer func() { _ = recover() }()
		m.w.Apply(m.wanted())
	}()
	m.files.Refuse = nil
	m.restart(t)
}

// meddle lets another program write a file that a class sets.
func (m *model) meddle(t *rapid.T) {
	cpu := rapid.IntRange(0, modelCPUs-1).Draw(t, "cpu")
	c := m.want[cpu]
	if c == nil || !m.possible(cpu, c) {
		return
	}
	for _, file := range []string{"scaling_max_freq", "scaling_min_freq", "scaling_governor", "disable"} {
		for name := range set(cpu, c) {
			if path.Base(name) == file {
				text := map[string]string{"scaling_max_freq": "2500000", "scaling_min_freq": "1100000", "scaling_governor": "powersave", "disable": "0"}[file]
				_ = m.files.Write(name, text) // the kernel may refuse it
				return
			}
		}
	}
}

// TestAnyHistory: after any history the files of each CPU are those of its class, all others have
// their originals, and a crash between two writes loses none of these.
func TestAnyHistory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{node: node{now: time.Unix(1, 0)}, want: map[int]*lifecycle.CPUClass{}}
		m.files = kernel.NewCPUFiles(kernel.CPUHardware{}, []int{0, 1, 2, 3})
		if rapid.Bool().Draw(t, "performance before") {
			_ = m.files.Write("cpu1/cpufreq/scaling_governor", "performance")
			_ = m.files.Write("cpu1/cpufreq/scaling_max_freq", "3000000")
		}
		m.base = m.files.Texts()
		m.restart(t)
		classes := []*lifecycle.CPUClass{nil, anyClass(t, "a"), anyClass(t, "b"), anyClass(t, "c")}
		t.Repeat(map[string]func(*rapid.T){
			"assign": func(t *rapid.T) {
				for cpu := range modelCPUs {
					m.want[cpu] = rapid.SampledFrom(classes).Draw(t, "class")
				}
				m.w.Apply(m.wanted())
				m.check(t, "assigned")
			},
			"crash": func(t *rapid.T) {
				for cpu := range modelCPUs {
					m.want[cpu] = rapid.SampledFrom(classes).Draw(t, "class")
				}
				m.crash(t)
				m.w.Apply(m.wanted())
				m.check(t, "after a crash")
			},
			"meddle": func(t *rapid.T) {
				m.w.Apply(m.wanted())
				m.meddle(t)
				m.w.Repair(m.wanted())
				m.check(t, "repaired")
			},
			"refuse": func(t *rapid.T) {
				for cpu := range modelCPUs {
					m.want[cpu] = rapid.SampledFrom(classes).Draw(t, "class")
				}
				left := rapid.IntRange(0, 6).Draw(t, "writes")
				m.files.Refuse = func(string, string) error {
					if left--; left == 0 {
						return syscall.EIO
					}
					return nil
				}
				m.w.Apply(m.wanted())
				m.files.Refuse = nil
				m.now = m.now.Add(time.Hour)
				m.w.Repair(m.wanted())
				m.check(t, "tried again")
			},
		})
		if rapid.Bool().Draw(t, "by another agent") {
			m.restart(t)
		}
		m.w.Apply(nil)
		if d := cmp.Diff(m.base, m.files.Texts()); d != "" {
			t.Fatalf("not restored: %s", d)
		}
	})
}
