package rotation

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Turns determines which parts this run of the tests of a package plays, and records the parts that pass.
type Turns struct {
	file      string                      // the file of the history
	dueCalled atomic.Bool                 // a test has called Due, Play or Note
	read      func() (*currentRun, error) // reads the file at the first call
}

// currentRun has the parts that this run plays.
type currentRun struct {
	history *History        // the runs before this run
	all     []string        // the names of all parts
	due     map[string]bool // the names of the parts that this run must play

	mu  sync.Mutex               // guards ran
	ran map[string]time.Duration // the durations of the parts that passed, by name
}

// NewTurns returns the Turns of a package of tests. The file, in the folder of the package, has the last run of each
// part. The function parts returns the names of all parts. NewTurns does not read the file and does not call the
// function parts. The first call of Due, Play or Note does both.
func NewTurns(file string, parts func() ([]string, error)) *Turns {
	t := &Turns{file: file}
	t.read = sync.OnceValues(func() (*currentRun, error) {
		t.dueCalled.Store(true)
		text, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer text.Close()
		history, err := Read(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all, err := parts()
		if err != nil {
			return nil, err
		}
		due := history.Due(all)
		if inCI() {
			due = history.DueOn(time.Now().UTC().Format(time.DateOnly), all)
		}
		r := &currentRun{history: history, all: all, due: map[string]bool{}, ran: map[string]time.Duration{}}
		for _, p := range due {
			r.due[p.Name] = true
		}
		fmt.Fprintf(os.Stderr, "vm: rotation: %s: run %d plays %d of %d parts\n", file, history.Run+1, len(due), len(all))
		return r, nil
	})
	return t
}

func inCI() bool { return os.Getenv("CI") != "" }

// Due reports whether this run plays a part. With TRIMTAB_TURNS=all, a run plays every part.
func (t *Turns) Due(tb testing.TB, name string) bool {
	tb.Helper()
	now, err := t.read()
	if err != nil {
		tb.Fatal(err)
	}
	return now.due[name] || os.Getenv("TRIMTAB_TURNS") == "all"
}

// Play skips the test if this run does not play it. The name of the test is the name of the part. `make soak` plays
// every test.
func (t *Turns) Play(tb testing.TB) {
	tb.Helper()
	if os.Getenv("TRIMTAB_SOAK") != "" {
		return
	}
	if !t.Due(tb, tb.Name()) {
		now, _ := t.read()
		tb.Skipf("the rotation plays this test in another run; it was %s", now.history.Of(tb.Name()).Last())
	}
	t.Note(tb, tb.Name())
}

// Note prints when a part was played last. If the test passes, Note also records that this run played the part.
func (t *Turns) Note(tb testing.TB, name string) {
	tb.Helper()
	now, err := t.read()
	if err != nil {
		tb.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "vm: %s: %s\n", name, now.history.Of(name).Last())
	begun := time.Now()
	tb.Cleanup(func() {
		if !tb.Failed() && !tb.Skipped() {
			now.mu.Lock()
			defer now.mu.Unlock()
			now.ran[name] = time.Since(begun)
		}
	})
}

// Keep writes the history with the parts of this run to the file. The next run then plays other parts. In CI, Keep
// writes nothing.
func (t *Turns) Keep() error {
	if !t.dueCalled.Load() {
		return nil
	}
	now, err := t.read()
	if err != nil || len(now.ran) == 0 || inCI() {
		return err
	}
	run := now.history.Next(now.due, now.ran)
	for name, took := range now.ran {
		now.history.Played(name, run, time.Now(), took)
	}
	next := t.file + ".new"
	to, err := os.Create(next)
	if err != nil {
		return err
	}
	if err := errors.Join(now.history.Write(to, now.all), to.Close()); err != nil {
		return err
	}
	return os.Rename(next, t.file)
}
