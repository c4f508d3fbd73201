package packing

import (
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
)

var (
	update = flag.Bool("update", false, "write the present counts into the kept histories")
	keep   = flag.String("keep", "", "shape for which to keep shortened histories in testdata, in which policy pools makes avoidably bad choices")
)

// countLine begins the line of a kept history that has the counts.
const countLine = "# avoidable:"

// counted formats the avoidable counts of a score.
func counted(s score) string {
	text := countLine
	for c, n := range s.avoidable {
		if n > 0 {
			text += fmt.Sprintf(" %s=%d", criterionNames[c], n)
		}
	}
	return text
}

// TestKeptHistories plays the kept histories, in which policy pools makes avoidably bad choices. Their number must not
// grow. After an improvement, -update writes the lower counts.
func TestKeptHistories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no kept histories: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			h, err := parseHistory(string(text))
			if err != nil {
				t.Fatal(err)
			}
			m := shapeNamed(t, h.shape).machine(t)
			p := playAll(t, m, newOurs(t, m), h)
			now, was := counted(p.score), countLine
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, countLine) {
					was = strings.TrimSpace(line)
				}
			}
			if *update {
				if err := os.WriteFile(file, []byte(strings.Replace(string(text), was, now, 1)), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			for c, n := range p.score.avoidable {
				if most := countIn(was, criterionNames[c]); n > most {
					t.Errorf("%d choices with an avoidable %s, want at most %d as in the kept history", n, criterionNames[c], most)
				}
			}
			if now != was {
				t.Logf("kept %q, now %q", was, now)
				for _, f := range p.found {
					t.Log(f.text)
				}
			}
		})
	}
}

func countIn(line, name string) (n int) {
	for word := range strings.FieldsSeq(line) {
		if text, is := strings.CutPrefix(word, name+"="); is {
			_, _ = fmt.Sscan(text, &n)
		}
	}
	return n
}

// TestKeepHistories writes kept histories for the shape of -keep, one for each criterion and fullness.
func TestKeepHistories(t *testing.T) {
	if *keep == "" {
		t.Skip("-keep is not set")
	}
	s := shapeNamed(t, *keep)
	m := s.machine(t)
	for _, full := range fullness {
		kept := [criteria]bool{}
		for seed := range uint64(seeds) {
			h := newHistory(s, m, full, steps, seed+1)
			for _, f := range playAll(t, m, newOurs(t, m), h).found {
				for c, yes := range f.avoidable {
					if !yes || kept[c] {
						continue
					}
					short := shorten(t, m, h, f.at, c)
					p := playAll(t, m, newOurs(t, m), short)
					for i, too := range p.found[len(p.found)-1].avoidable {
						kept[i] = kept[i] || too
					}
					text := fmt.Sprintf("# %s\n# Of seed %d, %d %% full. The last choice: %s.\n%s\n%s", s.about, seed+1, full, p.found[len(p.found)-1].text, counted(p.score), short)
					name := fmt.Sprintf("testdata/%s-%d-%s.txt", s.name, full, criterionNames[c])
					if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

// shorten removes events before an avoidably bad choice, as long as that choice stays bad by the criterion.
func shorten(t *testing.T, m *topology.Machine, h history, at, criterion int) history {
	t.Helper()
	shows := func(events []event) bool {
		last := len(events) - 1
		found := playFrom(t, m, newOurs(t, m), history{h.shape, events}, last).found
		return len(found) > 0 && found[0].avoidable[criterion]
	}
	events := slices.Clone(h.events[:at+1])
	for size := len(events) / 2; size > 0; size /= 2 {
		for from := len(events) - 1 - size; from >= 0; from -= size {
			if less := slices.Delete(slices.Clone(events), from, from+size); shows(less) {
				events = less
			}
		}
	}
	there := map[int]bool{}
	return history{h.shape, slices.DeleteFunc(events, func(e event) bool {
		comes := e.kind == own || e.kind == share
		there[e.id] = there[e.id] || comes
		return !there[e.id]
	})}
}

// drawn is the hash of all histories of the benchmark. They are the same on every machine and with every release of Go,
// so that results can be compared.
const drawn = 0x6fde7e5fba7e6fd0

// TestHistoriesAreDeterministic draws the same histories as another process did, and reads each back from its file
// format.
func TestHistoriesAreDeterministic(t *testing.T) {
	t.Parallel()
	sum := fnv.New64a()
	for _, s := range shapes {
		m := s.machine(t)
		for _, full := range fullness {
			for seed := range uint64(seeds) {
				h := newHistory(s, m, full, steps, seed+1)
				fmt.Fprint(sum, h)
				if asks, n := fullOf(h), len(m.CPUs); asks < n*(full-7)/100 || asks > n*(full+4)/100 {
					t.Errorf("%s, %d %% full, seed %d: %d of %d CPUs are requested", s.name, full, seed+1, asks, n)
				}
				if read, err := parseHistory(h.String()); err != nil || read.shape != h.shape || !slices.Equal(read.events, h.events) {
					t.Fatalf("%s, %d %% full, seed %d: read back, it differs (%v)", s.name, full, seed+1, err)
				}
			}
		}
	}
	if got := sum.Sum64(); got != drawn {
		t.Errorf("the histories have the hash %#x, want %#x: earlier results cannot be compared with new ones", got, uint64(drawn))
	}
}
