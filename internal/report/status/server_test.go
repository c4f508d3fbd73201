package status

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/report/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is a source whose events a test adds to.
type journal struct {
	mu     sync.Mutex
	events []api.Event
	more   chan struct{}
}

func newJournal() *journal { return &journal{more: make(chan struct{})} }

func (j *journal) add(kind string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, api.Event{Seq: uint64(len(j.events) + 1), Kind: kind})
	close(j.more)
	j.more = make(chan struct{})
}

func (j *journal) Status() api.Node { return sample() }

func (j *journal) Explain(namespace, pod, container string) ([]api.Container, bool) {
	var found []api.Container
	for _, c := range sample().Containers {
		if c.Pod == namespace+"/"+pod && (container == "" || container == c.Name) {
			found = append(found, c)
		}
	}
	return found, found != nil
}

func (j *journal) Events(_ context.Context, since uint64) ([]api.Event, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.events[min(since, uint64(len(j.events))):], j.more
}

// serveAt opens a socket
// and answers at it until ctx ends.
func serveAt(ctx context.Context, path string, src Source) error {
	s, err := Open(ctx, path)
	if err == nil {
		return s.Serve(ctx, src)
	}
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func serve(t *testing.T, path string, src Source) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serveAt(ctx, path, src) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	for deadline := time.Now().Add(time.Minute); ; {
		c, err := Dial(t.Context(), path)
		if err == nil {
			c.Close()
			return stop
		}
		select {
		case err := <-done:
			t.Fatalf("the server ended: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// socketPath returns a path that is short enough for a socket, whatever the test's name.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "status")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "run", "s.sock")
}

func dial(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestServeIsForItsOwnerAlone(t *testing.T) {
	path := socketPath(t)
	stop := serve(t, path, newJournal())
	for file, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("mode of %s is %o, want %o", filepath.Base(file), got, want)
		}
	}
	if err := stop(); err != nil {
		t.Errorf("ended with %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestServeOccupiedPath(t *testing.T) {
	t.Run("living agent", func(t *testing.T) {
		path := socketPath(t)
		serve(t, path, newJournal())
		err := serveAt(t.Context(), path, newJournal())
		if err == nil || !strings.Contains(err.Error(), "another agent serves") {
			t.Errorf("second server: %v", err)
		}
		if _, err := dial(t, path).Status(t.Context()); err != nil {
			t.Errorf("the first was harmed: %v", err)
		}
	})
	t.Run("living stranger", func(t *testing.T) {
		path := socketPath(t)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := serveAt(t.Context(), path, newJournal()); err == nil || !strings.Contains(err.Error(), "another agent serves") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("dead agent", func(t *testing.T) {
		path := socketPath(t)
		leaveSocket(t, path)
		if _, err := Dial(t.Context(), path); err == nil || !strings.Contains(err.Error(), "no agent answers") {
			t.Errorf("dialling a dead socket: %v", err)
		}
		serve(t, path, newJournal())
		if _, err := dial(t, path).Status(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("file", func(t *testing.T) {
		path := socketPath(t)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := serveAt(t.Context(), path, newJournal()); err == nil || !strings.Contains(err.Error(), "is not a socket") {
			t.Errorf("got %v", err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
			t.Errorf("the file is now %q, %v", b, err)
		}
	})
}

// leaveSocket leaves a socket file as a killed process does.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestServeAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := serveAt(ctx, socketPath(t), newJournal()); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestStatusAndExplain(t *testing.T) {
	path := socketPath(t)
	serve(t, path, newJournal())
	c := dial(t, path)
	n, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sample(), n); d != "" {
		t.Errorf("status (-want +got):\n%s", d)
	}
	found, err := c.Explain(t.Context(), "db", "redis-0", "")
	if err != nil || len(found) != 2 {
		t.Errorf("pod: %d containers, %v", len(found), err)
	}
	found, err = c.Explain(t.Context(), "db", "redis-0", "exporter")
	if err != nil || len(found) != 1 {
		t.Errorf("container: %d containers, %v", len(found), err)
	}
	var refused *RefusedError
	if _, err = c.Explain(t.Context(), "db", "other", "x"); !errors.As(err, &refused) || refused.Status != http.StatusNotFound ||
		!strings.Contains(err.Error(), "no container x of pod db/other") {
		t.Errorf("unknown pod: %v", err)
	}
	if _, err = c.Explain(t.Context(), "", "x", ""); !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		t.Errorf("no namespace: %v", err)
	}
	if _, err := fetch[any](t.Context(), c, http.MethodGet, "nonsense", nil, nil); !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("unknown question: %v", err)
	}
	if _, err := fetch[any](t.Context(), c, http.MethodGet, "events", map[string][]string{"since": {"x"}}, nil); !errors.As(err, &refused) {
		t.Errorf("bad sequence number: %v", err)
	}
}

func TestEvents(t *testing.T) {
	path := socketPath(t)
	j := newJournal()
	j.add("RunPodSandbox")
	j.add("CreateContainer")
	stop := serve(t, path, j)
	c := dial(t, path)
	var got []string
	err := c.Events(t.Context(), 1, false, func(e api.Event) error { got = append(got, e.Kind); return nil })
	if d := cmp.Diff([]string{"CreateContainer"}, got); d != "" || err != nil {
		t.Errorf("without following: %s, %v", d, err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got = nil
	err = c.Events(ctx, 0, true, func(e api.Event) error {
		got = append(got, e.Kind)
		switch e.Seq {
		case 2: // all past events; the next one is sent live
			j.add("StartContainer")
		case 3:
			cancel()
		}
		return nil
	})
	if d := cmp.Diff([]string{"RunPodSandbox", "CreateContainer", "StartContainer"}, got); d != "" || err != nil {
		t.Errorf("following: %s, %v", d, err)
	}

	enough := errors.New("enough")
	if err := c.Events(t.Context(), 0, true, func(api.Event) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("taker's error became %v", err)
	}

	// The agent ends while a client listens: both must end, and the client must report why.
	var gone *UnreachableError
	err = c.Events(t.Context(), 2, true, func(api.Event) error { go func() { _ = stop() }(); return nil })
	if !errors.As(err, &gone) || !strings.Contains(err.Error(), "the agent stopped") {
		t.Errorf("agent gone: %v", err)
	}
	if err := stop(); err != nil {
		t.Errorf("server ended with %v", err)
	}
}

func TestDialNobody(t *testing.T) {
	path := socketPath(t)
	_, err := Dial(t.Context(), path)
	var un *UnreachableError
	if !errors.As(err, &un) || un.Path != path || !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), "no socket at "+path) {
		t.Errorf("got %v", err)
	}
}

// foreseer is a source that can answer what-if questions.
type foreseer struct{ *journal }

func (foreseer) PlanPods(text []byte) (api.Plan, error) {
	if len(text) == 0 {
		return api.Plan{}, errors.New("no pod in it")
	}
	return api.Plan{Moves: []api.Move{{Pod: string(text)}}}, nil
}

func (foreseer) PlanConfig([]byte) (api.Plan, error) { return api.Plan{CPUs: sample().CPUs}, nil }

func TestPlan(t *testing.T) {
	path := socketPath(t)
	serve(t, path, foreseer{newJournal()})
	c := dial(t, path)
	if o, err := c.PlanPods(t.Context(), []byte("kind: Pod")); err != nil || len(o.Moves) != 1 || o.Moves[0].Pod != "kind: Pod" {
		t.Errorf("pods give %+v, %v", o, err)
	}
	var refused *RefusedError
	if _, err := c.PlanPods(t.Context(), nil); !errors.As(err, &refused) || refused.Reason != "no pod in it" {
		t.Errorf("nothing gives %v", err)
	}
	if _, err := c.PlanPods(t.Context(), make([]byte, maxPlanBytes+1)); !errors.As(err, &refused) || refused.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("too much gives %v", err)
	}
	if o, err := c.PlanConfig(t.Context(), []byte("x")); err != nil || o.CPUs.Online != sample().CPUs.Online {
		t.Errorf("a configuration gives %+v, %v", o, err)
	}
}

func TestPlanWhereNobodyCan(t *testing.T) {
	path := socketPath(t)
	serve(t, path, newJournal())
	var refused *RefusedError
	if _, err := dial(t, path).PlanPods(t.Context(), []byte("x")); !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("an agent that cannot plan gives %v", err)
	}
}
