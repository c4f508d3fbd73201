package hooks_test

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/rotation"
)

// turnsFile has the last run of each part.
const turnsFile = "turns.txt"

// turns has the parts of the rotation that this run plays.
type turns struct {
	mu   sync.Mutex
	book *rotation.Book
	all  []string
	due  map[string]bool
	ran  map[string]time.Duration // parts that passed
}

// asked is set once a test has called isDue.
var asked atomic.Bool

// theTurns is read once, at the first call.
var theTurns = sync.OnceValues(func() (*turns, error) {
	asked.Store(true)
	text, err := os.Open(turnsFile)
	if err != nil {
		return nil, err
	}
	defer text.Close()
	book, err := rotation.Read(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", turnsFile, err)
	}
	all, err := byTurns()
	t := &turns{book: book, all: all, due: map[string]bool{}, ran: map[string]time.Duration{}}
	for _, p := range book.Due(all) {
		t.due[p.Name] = true
	}
	fmt.Fprintf(os.Stderr, "vm: rotation: run %d plays %d of %d\n", book.Run+1, len(t.due), len(all))
	return t, err
})

// byTurns returns the names of all parts of the rotation: each scenario that a guest can play, and TestPools, on each
// guest with one attachment. With every attachment on every guest a run would take a third of an hour.
func byTurns() ([]string, error) {
	files, err := filepath.Glob(scenarioFiles)
	var all []string
	for _, file := range files {
		s, err := scenario.Load(file)
		if err != nil {
			return nil, err
		}
		if unplayable(s) == "" {
			all = append(all, scenarioName(file))
		}
	}
	all = append(all, poolsName)
	var named []string
	for _, name := range all {
		for i, g := range guests() {
			named = append(named, turnName(attachmentOn(name, i), name, g.name))
		}
	}
	return named, err
}

// attachments are the attachments of suite A.
var attachments = []string{"nri", "cri", "bypass"}

// attachmentOn returns the attachment that plays a part on the guest with this index. Each guest has another attachment
// than the one before, so that four guests use all three. It depends only on the name, so a new scenario changes no
// other part.
func attachmentOn(name string, guest int) string {
	sum := fnv.New32a()
	sum.Write([]byte(name))
	return attachments[(int(sum.Sum32()%uint32(len(attachments)))+guest)%len(attachments)]
}

func turnName(attachment, name, guest string) string {
	return strings.Join([]string{attachment, name, guest}, "/")
}

// isDue reports whether this run plays a part of the rotation. With TRIMTAB_TURNS=all it plays every part, with every
// attachment on every guest.
func isDue(t *testing.T, name string) bool {
	t.Helper()
	now, err := theTurns()
	if err != nil {
		t.Fatal(err)
	}
	return now.due[name] || os.Getenv("TRIMTAB_TURNS") == "all"
}

// noteTurn prints when a part was played last, and notes the present run if the part passes.
func noteTurn(t *testing.T, name string) {
	t.Helper()
	now, err := theTurns()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "vm: %s: %s\n", name, now.book.Of(name).Last())
	begun := time.Now()
	t.Cleanup(func() {
		if !t.Failed() && !t.Skipped() {
			now.mu.Lock()
			defer now.mu.Unlock()
			now.ran[name] = time.Since(begun)
		}
	})
}

// keepTurns writes the parts of this run to turnsFile, so that the next run continues. In CI it writes nothing.
func keepTurns() error {
	if !asked.Load() {
		return nil
	}
	now, err := theTurns()
	if err != nil || len(now.ran) == 0 || os.Getenv("CI") != "" {
		return err
	}
	run := now.book.Run + 1
	for name, took := range now.ran {
		now.book.Played(name, run, time.Now(), took)
	}
	next := turnsFile + ".new"
	to, err := os.Create(next)
	if err != nil {
		return err
	}
	if err := now.book.Write(to, now.all); err != nil {
		to.Close()
		return err
	}
	if err := to.Close(); err != nil {
		return err
	}
	return os.Rename(next, turnsFile)
}

func TestMain(m *testing.M) {
	vm.Main(m, keepTurns)
}
