package cri_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/attachtest"
)

// handler stands in for the conductor.
type handler struct {
	mu     sync.Mutex
	events []lifecycle.Event
	answer map[lifecycle.Kind]func(ev lifecycle.Event) (conductor.Answer, error)

	detached atomic.Int64
}

func (h *handler) Handle(_ context.Context, _ conductor.Carrier, ev lifecycle.Event) (conductor.Answer, error) {
	h.mu.Lock()
	h.events = append(h.events, ev)
	f := h.answer[ev.Kind]
	h.mu.Unlock()
	if f == nil {
		return conductor.Answer{}, nil
	}
	return f(ev)
}

func (h *handler) Wants() []lifecycle.Kind                       { return nil }
func (h *handler) Attached(conductor.Carrier, conductor.Runtime) {}
func (h *handler) Detached(conductor.Carrier, error)             { h.detached.Add(1) }

func (h *handler) on(k lifecycle.Kind, f func(ev lifecycle.Event) (conductor.Answer, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer[k] = f
}

// says sets the values of the answers to events of a kind.
func (h *handler) says(k lifecycle.Kind, values ...lifecycle.Value) {
	h.on(k, func(lifecycle.Event) (conductor.Answer, error) { return conductor.Answer{Values: values}, nil })
}

// found returns the first event of a kind about a container or pod whose id has this suffix; it waits for
// one.
func (h *handler) found(t *testing.T, k lifecycle.Kind, id string) lifecycle.Event {
	t.Helper()
	var out lifecycle.Event
	attachtest.Until(t, fmt.Sprintf("%v of %s", k, id), func() bool { ev, ok := h.look(k, id); out = ev; return ok })
	return out
}

func (h *handler) look(k lifecycle.Kind, id string) (lifecycle.Event, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ev := range h.events {
		if ev.Kind == k && (ev.Container != nil && ev.Container.ID == id || ev.Container == nil && ev.Pod != nil && ev.Pod.ID == id || id == "") {
			return ev, true
		}
	}
	return lifecycle.Event{}, false
}
