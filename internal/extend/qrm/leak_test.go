package qrm_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/extend/qrm"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// node is a node with one plugin. Its pods are created and removed.
type node struct {
	t      *testing.T
	rt     *rapid.T
	dir    string
	f      *fake
	r      *rig
	stop   func() // the plugin's server; nil while it is down
	events map[string]int
	story  []string

	mu    sync.Mutex // guards all below
	live  map[string]bool
	state []byte
}

func (n *node) start(saved []byte) {
	n.r = start(n.t, n.dir, func(o *qrm.Options) {
		o.Timeout, o.ReconcileInterval, o.SavedState = 2*time.Second, 3*time.Millisecond, saved
		o.SaveState = func(b []byte) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.state = b
			return nil
		}
		o.LivePods = n.pods
	})
	n.r.ReleaseEnded(n.pods())
}

func (n *node) pods() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[string]bool{}
	for uid := range n.live {
		out[uid] = true
	}
	return out
}

// up starts the plugin again, which registers.
func (n *node) up() {
	if n.stop == nil {
		n.stop = n.f.serve(n.t, filepath.Join(n.dir, "nic.sock"))
	}
	n.r.mustRegister("nic", "nic.sock")
}

func (n *node) allocate(uid string) {
	n.mu.Lock()
	n.live[uid] = true
	n.mu.Unlock()
	p := &lifecycle.Pod{UID: uid, Namespace: "default", Name: uid}
	if q := n.r.Question(p, app("app"), spec(lifecycle.Amounts{"nic": 1})); q != nil {
		_, _ = q.Allocate(n.t.Context(), nil) // a plugin that is down cannot answer
	}
}

// expect asks ahead of a creation that comes later, or never.
func (n *node) expect(uid string) {
	p := &lifecycle.Pod{UID: uid, Namespace: "default", Name: uid}
	if q := n.r.Question(p, app("app"), spec(lifecycle.Amounts{"nic": 1})); q != nil {
		q.MarkBeforeCreation()
		_, _ = q.Allocate(n.t.Context(), nil)
	}
}

func (n *node) remove(uid string) {
	n.mu.Lock()
	delete(n.live, uid)
	n.mu.Unlock()
	n.r.Remove(uid)
}

// restart starts another manager, with the state of the previous one or without. With the state it knows
// the same.
func (n *node) restart(keep bool) {
	n.r.stop()
	values := func() map[string]any {
		out := map[string]any{}
		for uid := range n.pods() {
			out[uid] = n.r.Values(uid)
		}
		return out
	}
	before := values()
	var saved []byte
	if keep {
		saved = n.state
	}
	n.start(saved)
	if after := values(); keep {
		if diff := cmp.Diff(before, after); diff != "" {
			n.rt.Errorf("a restart changed what plugins have allocated: %s", diff)
		}
	}
}

// given returns the pods for which the plugin has allocated something.
func (n *node) given() []string {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	return slices.DeleteFunc(sorted(n.f.have), func(uid string) bool { return n.f.have[uid] == nil })
}

func sorted[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// TestNoLeak: after any sequence of creations, ends, restarts and failures, the plugin has allocations only
// for live pods, and the manager knows all of them.
func TestNoLeak(t *testing.T) {
	events := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		f := &fake{options: &api.ResourcePluginOptions{NeedReconcile: true}, have: map[string]*api.ContainerResources{}, forgets: true}
		f.allocate = func(_ context.Context, r *api.ResourceRequest) (*api.ResourceAllocation, error) {
			a := allocation("nic", &api.ResourceAllocationInfo{AllocatedQuantity: 1, Envs: map[string]string{"GIVEN": r.GetPodUid()}})
			f.mu.Lock()
			defer f.mu.Unlock()
			f.have[r.GetPodUid()] = &api.ContainerResources{ContainerResources: map[string]*api.ResourceAllocation{"app": a}}
			return a, nil
		}
		n := &node{t: t, rt: rt, dir: t.TempDir(), f: f, live: map[string]bool{}, events: events}
		n.start(nil)
		defer func() {
			n.r.stop()
			if n.stop != nil {
				n.stop()
			}
		}()
		n.up()
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			uid := fmt.Sprintf("u%d", rapid.IntRange(1, 4).Draw(rt, "pod"))
			what := rapid.SampledFrom([]string{"allocate", "allocate", "allocate", "remove", "remove", "away", "away", "back", "restart", "restart without state",
				"expect", "expect", "expect no more"}).Draw(rt, "what")
			events[what]++
			n.story = append(n.story, what+" "+uid)
			switch what {
			case "allocate":
				n.allocate(uid)
			case "remove":
				n.remove(uid)
			case "expect":
				n.expect(uid)
			case "expect no more":
				n.r.ReleaseIfNotCreated(uid)
			case "away":
				if n.stop != nil {
					n.stop()
					n.stop = nil
				}
			case "back":
				n.up()
			case "restart":
				n.restart(true)
			case "restart without state":
				n.restart(false)
			}
		}
		n.up()
		for i := range 5 { // none of them will come any more
			n.r.ReleaseIfNotCreated(fmt.Sprintf("u%d", i))
		}
		live := n.pods()
		defer func() {
			if t.Failed() {
				t.Logf("live %v, given %v, state %+v; %v", live, n.given(), n.r.state("nic"), n.story)
			}
		}()
		until(t, "the plugin has something for live pods alone, and the manager knows it", func() bool {
			s := n.r.state("nic")
			given := n.given()
			return s.Removals == 0 && s.Pods >= len(given) && !slices.ContainsFunc(given, func(uid string) bool { return !live[uid] || len(n.r.Values(uid)) == 0 })
		})
	})
	t.Log(events)
}
