package rotation

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestRunsForAllParts plays runs one after another: each part is played within ten, whatever the durations are, and
// no run takes much more than a tenth of the total.
func TestRunsForAllParts(t *testing.T) {
	t.Parallel()
	var all []string
	takes := map[string]time.Duration{}
	var whole, longest time.Duration
	for i := range 97 {
		name := fmt.Sprintf("nri/part%d/v%d", i, i%2+1)
		all, takes[name] = append(all, name), time.Duration(5+i*i%120)*time.Second
		whole, longest = whole+takes[name], max(longest, takes[name])
	}
	b, err := Read(strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]int{}
	for run := 1; run <= 60; run++ {
		var took time.Duration
		for _, p := range b.Due(all) {
			took += takes[p.Name]
			b.Played(p.Name, run, time.Unix(int64(run)*86400, 0), takes[p.Name])
			last[p.Name] = run
		}
		if run > 2*RunsForAllParts && took > whole/RunsForAllParts+longest { // all durations are known by then
			t.Errorf("run %d takes %v of %v", run, took, whole)
		}
		for _, name := range all {
			if run >= RunsForAllParts && run-last[name] >= RunsForAllParts {
				t.Errorf("after run %d: %s was played last in run %d", run, name, last[name])
			}
		}
		b = again(t, b, all)
	}
}

// again writes and reads the history.
func again(t *testing.T, b *History, all []string) *History {
	t.Helper()
	var text bytes.Buffer
	if err := b.Write(&text, all); err != nil {
		t.Fatal(err)
	}
	read, err := Read(&text)
	if err != nil {
		t.Fatal(err)
	}
	if read.Run != b.Run && len(read.parts) != len(b.parts) {
		t.Fatalf("%+v became %+v", b, read)
	}
	return read
}

// TestFailedStays: a part that failed is played again in the next run, and one that does not exist any more
// is removed from the file.
func TestFailedStays(t *testing.T) {
	t.Parallel()
	b, err := Read(strings.NewReader("3 2026-11-20 10 a\n4 2026-11-21 10 gone\n5 2026-11-22 10 b\n"))
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"a", "b"}
	for range 2 {
		if due := b.Due(all); len(due) != 1 || due[0].Name != "a" || due[0].Last() != "last played in run 3, on 2026-11-20" {
			t.Fatalf("due is %+v, want a alone", due)
		}
	}
	if due := b.Due([]string{"new", "a", "b"}); len(due) != 1 || due[0].Last() != "never played before" {
		t.Errorf("due is %+v, want what is new", due)
	}
	var text bytes.Buffer
	if err := b.Write(&text, all); err != nil || strings.Contains(text.String(), "gone") {
		t.Errorf("%v: %s", err, &text)
	}
}

// TestDueOn: on each day CI plays at least one part, and no more than its time allows. After some months of days each
// part was played.
func TestDueOn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		parts   int
		seconds string // how long each took; "" if they were never played
		want    int    // the parts of a day
	}{{150, "", 4}, {150, "100", 2}, {15, "60", 2}, {4, "150", 1}, {3, "900", 1}} {
		var all []string
		var text strings.Builder
		for i := range c.parts {
			all = append(all, fmt.Sprintf("nri/part%d/v%d", i, i%2+1))
			if c.seconds != "" {
				fmt.Fprintf(&text, "3 2026-11-20 %s %s\n", c.seconds, all[i])
			}
		}
		b, err := Read(strings.NewReader(text.String()))
		if err != nil {
			t.Fatal(err)
		}
		played := map[string]bool{}
		for day := range 8 * c.parts / c.want {
			due := b.DueOn(time.Unix(int64(20_000+day)*86400, 0).UTC().Format(time.DateOnly), all)
			if len(due) != c.want {
				t.Fatalf("%+v: day %d plays %+v", c, day, due)
			}
			for _, p := range due {
				played[p.Name] = true
			}
		}
		if len(played) != c.parts {
			t.Errorf("%+v: %d of the parts were played", c, len(played))
		}
	}
}

// TestNext: a run counts if it played all parts that were due, and perhaps more.
func TestNext(t *testing.T) {
	t.Parallel()
	b := &History{Run: 4}
	due, ran := map[string]bool{"a": true, "b": true}, map[string]time.Duration{"a": 1, "c": 1}
	if next := b.Next(due, ran); next != 4 {
		t.Errorf("a run without b is run %d, want 4", next)
	}
	ran["b"] = 1
	if next := b.Next(due, ran); next != 5 {
		t.Errorf("a whole run is run %d, want 5", next)
	}
	if next := new(History).Next(due, nil); next != 1 {
		t.Errorf("the first run is run %d", next)
	}
}

// TestBad: invalid lines are refused with their number.
func TestBad(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x 2026-11-20 1 a", "1 2026-11-20 a", "0 2026-11-20 1 a", "1 2026-11-20 -1 a", "1 2026-11-20 1 a\n1 2026-11-20 1 a"} {
		if b, err := Read(strings.NewReader("# words\n\n" + text)); err == nil || !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("%q was read as %+v: %v", text, b, err)
		}
	}
}
