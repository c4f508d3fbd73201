package recorded

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodelock"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// Text is the recording of one play, line by line.
type Text struct {
	mu      sync.Mutex
	b       strings.Builder
	pending string // a write that the kernel has not accepted yet
	saved   string // the last checkpoint
	left    uint64 // number of events of the journal that were left out so far
	hidden  string
}

// Hide removes a word from every line, such as the name of a temporary directory.
func (t *Text) Hide(word string) { t.hidden = word }

// Line adds a line.
func (t *Text) Line(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused()
	t.line(format, args...)
}

func (t *Text) line(format string, args ...any) {
	fmt.Fprintf(&t.b, format, args...)
	t.b.WriteByte('\n')
}

// refused adds the pending write as refused by the kernel.
func (t *Text) refused() {
	if t.pending != "" {
		t.line("refused %s", t.pending)
	}
	t.pending = ""
}

// String returns the whole recording.
func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused()
	if t.hidden != "" {
		return strings.ReplaceAll(t.b.String(), t.hidden, "")
	}
	return t.b.String()
}

// JSON adds a value as JSON.
func (t *Text) JSON(what string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		text = []byte(err.Error())
	}
	t.Line("%s %s", what, text)
}

// Kernel records every write to a tree from now on, accepted or refused, by the agent or the runtime.
func (t *Text) Kernel(k *kernel.Cgroups) {
	k.FailWrites(func(path, value string) error { t.Asked(path, value); return nil })
	k.OnWrite(t.Wrote)
}

// Asked notes that a write begins.
func (t *Text) Asked(path, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused()
	t.pending = fmt.Sprintf("%s = %q", path, value)
}

// Wrote notes that the kernel accepted a write.
func (t *Text) Wrote(path, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := fmt.Sprintf("%s = %q", path, value)
	if t.pending != now {
		t.refused()
	}
	t.pending = ""
	t.line("wrote %s", now)
}

// Answer adds the answer to an event.
func (t *Text) Answer(ev *lifecycle.Event, ans conductor.Answer, err error) {
	about := ""
	if ev.Pod != nil {
		about = ev.Pod.ID
	}
	if ev.Container != nil {
		about = ev.Container.ID
	}
	t.Line("answer to %s %s: owns=%t err=%v", ev.Kind, about, ans.OwnsCPUs, err)
	t.Values("  it", ans.Values)
	for _, s := range ans.Others {
		t.Values("  "+s.Container, s.Values)
	}
}

// Values adds the values that are decided for a container, with their reasons.
func (t *Text) Values(whose string, values []lifecycle.Value) {
	for _, v := range values {
		t.JSON(whose, v)
	}
}

// Checkpoint adds the checkpoint, if it changed.
func (t *Text) Checkpoint(data []byte) {
	if now := string(data); now != t.saved {
		t.saved = now
		t.Line("checkpoint %s", now)
	}
}

// Events adds lines of the journal. It leaves out those about CPU classes: these are written while the next event
// is decided, so their place in the journal varies.
func (t *Text) Events(events []api.Event) {
	for _, e := range events {
		if e.Kind == "CPUClasses" {
			t.left++
			continue
		}
		e.Seq -= t.left
		e.Op, e.Time, e.Took = "", time.Time{}, 0
		t.JSON("journal", e)
	}
}

// Status adds the status of the node, without the parts about the process.
func (t *Text) Status(n api.Node) {
	n.Agent, n.Started = nodelock.Holder{}, time.Time{}
	t.JSON("status", n)
}
