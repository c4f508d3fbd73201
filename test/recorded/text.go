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

// Text is the recording of one run, line by line.
type Text struct {
	mu            sync.Mutex
	b             strings.Builder
	pending       string // a write that has begun and that the kernel has not accepted yet; "" for none
	saved         string // the last checkpoint that was added
	skippedEvents uint64 // the number of journal events that were left out so far
	hidden        string // the word that String removes; "" for none
}

// Hide makes String remove a word from every line, such as the name of a temporary directory.
func (t *Text) Hide(word string) { t.hidden = word }

// AddLine adds a line.
func (t *Text) AddLine(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addRefused()
	t.addLineLocked(format, args...)
}

// addLineLocked adds a line. The caller holds mu.
func (t *Text) addLineLocked(format string, args ...any) {
	fmt.Fprintf(&t.b, format, args...)
	t.b.WriteByte('\n')
}

// addRefused adds a line which says that the kernel has refused the pending write. If no write is pending, it adds
// nothing. The caller holds mu.
func (t *Text) addRefused() {
	if t.pending != "" {
		t.addLineLocked("refused %s", t.pending)
	}
	t.pending = ""
}

// String returns the whole recording.
func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addRefused()
	if t.hidden != "" {
		return strings.ReplaceAll(t.b.String(), t.hidden, "")
	}
	return t.b.String()
}

// AddJSON adds a line with a name and a value as JSON.
func (t *Text) AddJSON(name string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		text = []byte(err.Error())
	}
	t.AddLine("%s %s", name, text)
}

// RecordWrites makes t record every later write to the cgroup files of k by the agent or the runtime, also a write that the
// kernel refuses.
func (t *Text) RecordWrites(k *kernel.Cgroups) {
	k.FailWrites(func(path, value string) error { t.WriteBegins(path, value); return nil })
	k.OnWrite(t.WriteAccepted)
}

// WriteBegins notes that a write to a kernel file begins. If the previous write was not accepted, the kernel has
// refused it.
func (t *Text) WriteBegins(path, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addRefused()
	t.pending = fmt.Sprintf("%s = %q", path, value)
}

// WriteAccepted adds a line which says that the kernel has accepted a write.
func (t *Text) WriteAccepted(path, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := fmt.Sprintf("%s = %q", path, value)
	if t.pending != now {
		t.addRefused()
	}
	t.pending = ""
	t.addLineLocked("wrote %s", now)
}

// AddAnswer adds the agent's answer to an event.
func (t *Text) AddAnswer(ev *lifecycle.Event, ans conductor.Answer, err error) {
	about := ""
	if ev.Pod != nil {
		about = ev.Pod.ID
	}
	if ev.Container != nil {
		about = ev.Container.ID
	}
	t.AddLine("answer to %s %s: owns=%t err=%v", ev.Kind, about, ans.OwnsCPUs, err)
	t.AddValues("  it", ans.Values)
	for _, s := range ans.Others {
		t.AddValues("  "+s.Container, s.Values)
	}
}

// AddValues adds a line for each value that the agent has decided for a container, with the value's reason. Each line
// begins with name.
func (t *Text) AddValues(name string, values []lifecycle.Value) {
	for _, v := range values {
		t.AddJSON(name, v)
	}
}

// AddCheckpoint adds the agent's checkpoint, if the checkpoint has changed since the last call.
func (t *Text) AddCheckpoint(data []byte) {
	if now := string(data); now != t.saved {
		t.saved = now
		t.AddLine("checkpoint %s", now)
	}
}

// AddEvents adds events of the journal. It leaves out events about CPU classes, because their place in the journal varies:
// the agent adds such an event to the journal while it decides about the next event.
func (t *Text) AddEvents(events []api.Event) {
	for _, e := range events {
		if e.Kind == "CPUClasses" {
			t.skippedEvents++
			continue
		}
		e.Seq -= t.skippedEvents
		e.Op, e.Time, e.Took = "", time.Time{}, 0
		t.AddJSON("journal", e)
	}
}

// AddStatus adds the status of the node, without the data about the agent's process and without its start time.
func (t *Text) AddStatus(n api.Node) {
	n.Agent, n.Started = nodelock.Holder{}, time.Time{}
	t.AddJSON("status", n)
}
