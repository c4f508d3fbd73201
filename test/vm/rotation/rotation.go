// Package rotation chooses the parts that a run of the test suites plays. A part is a test, or one of the cases that a
// test plays in virtual machines. All parts would take hours. So a run plays the parts that were played longest ago,
// until these parts take a tenth of the total time. Each part is played at least once in ten complete runs.
//
// A text file has the last run of each part. Commit the file after a run that passes. CI cannot commit the file. So
// in CI the day determines the parts, and CITime limits their duration.
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

// CITime limits the total duration of the parts of a run in CI. The durations are those of the last runs of the parts.
// The first part is played even if it takes longer.
const CITime = 4 * time.Minute

// assumedDuration is the assumed duration of a part that was never played.
const assumedDuration = 60 * time.Second

// Part is one part of the rotation, with its last run.
type Part struct {
	Name string
	Run  int           // the number of the last run that played the part; 0 for none
	Day  string        // the day of that run, such as 2026-11-23
	Took time.Duration // the duration of the part in that run, or assumedDuration
}

// Last returns a text that says when the part was played last.
func (p Part) Last() string {
	if p.Run == 0 {
		return "never played before"
	}
	return fmt.Sprintf("last played in run %d, on %s", p.Run, p.Day)
}

// History has the last run of each part.
type History struct {
	Run   int             // the number of the last run
	parts map[string]Part // by name
}

const lineFormat = "%d %s %d %s\n" // run, day, seconds, name

const fileHeader = `# The parts that "make e2e" plays in turns. A line has the last run of a part: the number of the run, its day, the
# duration of the part in seconds, and the name of the part. Each run plays the parts that were played longest ago,
# until they take a tenth of the total time. Commit this file together with the change that the run tested.
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
			return nil, fmt.Errorf("line %d: %q is not the number of a run, a day, seconds and a name (%d of these 4 could be read)", n, text, got)
		}
		p.Took = time.Duration(seconds) * time.Second
		if _, twice := b.parts[p.Name]; twice {
			return nil, fmt.Errorf("line %d: %s is listed twice", n, p.Name)
		}
		b.parts[p.Name], b.Run = p, max(b.Run, p.Run)
	}
	return b, lines.Err()
}

// Of returns the part with this name. A part that is not in the history was never played.
func (b *History) Of(name string) Part {
	if p, has := b.parts[name]; has {
		return p
	}
	return Part{Name: name, Took: assumedDuration}
}

// Due returns the parts that the next run must play. They are the parts that were played longest ago, until these parts
// take a tenth of the time of all parts. They are also the parts that otherwise would not be played within
// RunsForAllParts runs. Parts with the same last run are ordered by a hash of their names. So long and short parts mix,
// although similar names often mean similar durations.
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

// DueOn returns the parts that a run in CI plays on a day, such as 2026-11-23. CI cannot commit the history, so a hash
// of day and name orders the parts. DueOn returns the first parts, until they take a tenth of the time of all parts, or
// until another part would exceed CITime. It returns at least one part.
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

// hash returns the FNV-1a hash of a name.
func hash(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32()
}

// Next returns the number of a run that played the parts in ran. If the run played all parts in due, it gets the next
// number. Otherwise it gets the number of the last run, because an incomplete run does not count for RunsForAllParts.
func (b *History) Next(due map[string]bool, ran map[string]time.Duration) int {
	for name := range due {
		if _, has := ran[name]; !has {
			return max(b.Run, 1)
		}
	}
	return b.Run + 1
}

// Played records in the history that a run played a part.
func (b *History) Played(name string, run int, day time.Time, took time.Duration) {
	b.parts[name] = Part{Name: name, Run: run, Day: day.UTC().Format(time.DateOnly), Took: took.Round(time.Second)}
}

// Write writes the history of the parts in all. It leaves out other parts, which do not exist any more.
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
