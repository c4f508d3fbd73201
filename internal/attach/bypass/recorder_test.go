package bypass

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/attachtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder records events, as "Kind name".
type recorder struct {
	mu       sync.Mutex
	told     []string
	asked    []*lifecycle.Resources
	attached int
	sync     lifecycle.Event
	all      []lifecycle.Event
}

func (h *recorder) Handle(_ context.Context, _ conductor.Carrier, ev lifecycle.Event) (conductor.Answer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, ev)
	name := ""
	switch {
	case ev.Container != nil:
		name = " " + ev.Container.Name
	case ev.Pod != nil:
		name = " " + ev.Pod.Name
	default:
		h.sync = ev
	}
	h.told = append(h.told, ev.Kind.String()+name)
	if ev.Kind == lifecycle.UpdateContainer {
		h.asked = append(h.asked, ev.Requested)
	}
	return conductor.Answer{}, nil
}

func (h *recorder) Wants() []lifecycle.Kind { return nil }

func (h *recorder) Attached(conductor.Carrier, conductor.Runtime) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attached++
}

func (h *recorder) Detached(conductor.Carrier, error) {}

// events returns the recorded events, without those that repeat at each change of a file.
func (h *recorder) events() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.told), func(e string) bool { return strings.HasPrefix(e, "PostUpdateContainer") })
}

func (h *recorder) count(event string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, e := range h.told {
		if e == event {
			n++
		}
	}
	return n
}

// run starts an attachment until the test ends, and waits until it has synchronised.
func run(t *testing.T, r *fakeCRI, h conductor.Handler, more ...func(*Options)) *Attachment {
	t.Helper()
	o := Options{
		Endpoint: "unix://" + r.socket, Tree: &cgroup.Tree{FS: r.kernel, Version: r.kernel.version},
		Proc: proc(t), Watch: func() (cgroup.Watcher, error) { return r.kernel, nil }, Handler: h, Log: slog.New(slog.DiscardHandler),
		Backoff: connect.Backoff{Min: 5 * time.Millisecond, Max: 20 * time.Millisecond}, Resync: time.Hour,
	}
	for _, f := range more {
		f(&o)
	}
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	attachtest.Run(t, a.Run)
	attachtest.Until(t, "synchronised", func() bool { s, _, _ := a.Status(); return s == connect.StateSynchronised })
	return a
}
