// Package rotation chooses the parts that a run of the suites plays if all parts would take hours: the
// parts that were played longest ago, until they take a tenth of the total time. So each part is played
// within ten runs that play all their parts.
//
// A text file has the last run of each part. Commit it with a run that passes. CI cannot commit it, so the day chooses
// the parts there, and a limit keeps CI below its time.
package rotation

import (
	"bufio"
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"time"
)

// RunsForAllParts is the number of runs in which each part is played at least once.
const RunsForAllParts = 10

// CITime is the most time of guests that the parts of a run in CI take, as far as their durations are known. At least
// one part is played.
const CITime = 4 * time.Minute

// assumedDuration is the assumed duration of a part that was never played.
const assumedDuration = 60 * time.Second

// Part is one part of the rotation, with its last run.
type Part struct {
	Name string
	Run  int    // the last run that played it; 0 for none
	Day  string // the day of that run, such as 2026-11-23
	Took time.Duration
}

// Last describes when the part was played last.
func (p Part) Last() string {
	if p.Run == 0 {
		return "never played before"
	}
	return fmt.Sprintf("last played in run %d, on %s", p.Run, p.Day)
}

// History has the last run of each part.
type History struct {
	Run   int // the number of the last run
	parts map[string]Part
}

const lineFormat = "%d %s %d %s\n" // run, day, seconds, name

const fileHeader = `# What "make e2e" plays by turns: the run that played it last, its day, the seconds it took, its name. Each run plays
# what was played longest ago, a tenth of the whole. Commit this file with what the run was made for.
`

// Read reads a history from its file. An empty file means that nothing was played yet.
func Read(from io.Reader) (*History, error) {
	b := &History{parts: map[string]Part{}}
	lines := bufio.NewScanner(from)
	for n := 1; lines.Scan(); n++ {
		text := lines.Text()
		if strings.TrimSpace(text) == "" || strings.HasPrefix(text, "#") {
			continue
		}
		var p Part
		var seconds int
		if got, err := fmt.Sscanf(text+"\n", lineFormat, &p.Run, &p.Day, &seconds, &p.Name); err != nil || p.Run < 1 || seconds < 0 {
			return nil, fmt.Errorf("line %d: %q is not a run, a day, seconds and a name (%d of 4 read)", n, text, got)
		}
		p.Took = time.Duration(seconds) * time.Second
		if _, twice := b.parts[p.Name]; twice {
			return nil, fmt.Errorf("line %d: %s is listed twice", n, p.Name)
		}
		b.parts[p.Name], b.Run = p, max(b.Run, p.Run)
	}
	return b, lines.Err()
}

// Of returns a part with its last run. A part that is not in the history was never played.
func (b *History) Of(name string) Part {
	if p, has := b.parts[name]; has {
		return p
	}
	return Part{Name: name, Took: assumedDuration}
}

// Due returns the parts that the next run must play: those played longest ago, until they take a tenth of
// the time of all parts. Parts of the same run are ordered by a hash of their names, since parts with similar
// names take similarly long.
func (b *History) Due(all []string) []Part {
	var parts []Part
	var whole time.Duration
	for _, name := range all {
		p := b.Of(name)
		parts, whole = append(parts, p), whole+p.Took
	}
	slices.SortFunc(parts, func(x, y Part) int {
		return cmp.Or(x.Run-y.Run, cmp.Compare(hash(x.Name), hash(y.Name)), strings.Compare(x.Name, y.Name))
	})
	var took time.Duration
	for i, p := range parts {
		if took*RunsForAllParts >= whole && b.Run+1-p.Run < RunsForAllParts {
			return parts[:i]
		}
		took += p.Took
	}
	return parts
}

// DueOn returns the parts that a run in CI plays on a day. CI cannot commit the history, so the day, such as 2026-11-23,
// orders the parts. The parts take a tenth of the time of all parts, but at most CITime, or as long as the first of them.
func (b *History) DueOn(day string, all []string) []Part {
	var parts []Part
	var whole, took time.Duration
	for _, name := range all {
		p := b.Of(name)
		parts, whole = append(parts, p), whole+p.Took
	}
	slices.SortFunc(parts, func(x, y Part) int {
		return cmp.Or(cmp.Compare(hash(day+x.Name), hash(day+y.Name)), strings.Compare(x.Name, y.Name))
	})
	for i, p := range parts {
		if i > 0 && (took*RunsForAllParts >= whole || took+p.Took > CITime) {
			return parts[:i]
		}
		took += p.Took
	}
	return parts
}

func hash(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32()
}

// Next returns the number of a run that played some parts: the next number if they include all that were due, and
// otherwise the last number again, because such a run does not count for RunsForAllParts.
func (b *History) Next(due map[string]bool, ran map[string]time.Duration) int {
	for name := range due {
		if _, has := ran[name]; !has {
			return max(b.Run, 1)
		}
	}
	return b.Run + 1
}

// Played notes that a run played a part.
func (b *History) Played(name string, run int, day time.Time, took time.Duration) {
	b.parts[name] = Part{Name: name, Run: run, Day: day.UTC().Format(time.DateOnly), Took: took.Round(time.Second)}
}

// Write writes the history, without parts that do not exist any more.
func (b *History) Write(to io.Writer, all []string) error {
	text := fileHeader
	for _, name := range slices.Sorted(slices.Values(all)) {
		if p, has := b.parts[name]; has {
			text += fmt.Sprintf(lineFormat, p.Run, p.Day, int(p.Took/time.Second), p.Name)
		}
	}
	_, err := io.WriteString(to, text)
	return err
}
