package qrm_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/extend/qrm"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestState: allocations and pending releases survive a restart; a damaged state is ignored.
func TestState(t *testing.T) {
	dir := t.TempDir()
	f := &fake{options: &api.ResourcePluginOptions{}, allocate: gives("nic", "1")}
	var state []byte
	keep := func(o *qrm.Options) {
		o.Timeout = 2 * time.Second
		o.SavedState, o.SaveState = state, func(b []byte) error { state = b; return nil }
	}
	r := start(t, dir, keep)
	stop := f.serve(t, filepath.Join(dir, "nic.sock"))
	r.mustRegister("nic", "nic.sock")
	other := &lifecycle.Pod{UID: "u2", Namespace: "default", Name: "other"}
	for _, p := range []*lifecycle.Pod{pod, other} {
		if _, err := r.Question(p, app("app"), spec(lifecycle.Amounts{"nic": 1})).Allocate(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	r.Remove("u2")
	r.stop()
	r = start(t, dir, keep)
	if s := r.state("nic"); s.Pods != 1 || s.Removals != 1 {
		t.Errorf("after a restart: %+v", s)
	}
	a, err := r.Question(pod, app("app"), spec(lifecycle.Amounts{"nic": 1})).Allocate(t.Context(), nil)
	if err != nil || len(a.Values) != 1 {
		t.Errorf("the last answer of a plugin that is away: %+v, %v", a, err)
	}
	r.ReleaseEnded(map[string]bool{"u1": true})
	f.serve(t, filepath.Join(dir, "nic.sock"))
	r.mustRegister("nic", "nic.sock")
	until(t, "it releases", func() bool { return r.state("nic").Removals == 0 })
	r.stop()
	for _, bad := range [][]byte{[]byte("{"), []byte(`{"version":7}`), []byte(`{"version":1,"pods":{"u":{"asked":["x"],"answers":{"c":{"x":{"request":"/w==","answer":""}}}}}}`), state[:len(state)/2]} {
		state = bad
		r = start(t, dir, keep)
		if plugins, _, _ := r.States(); len(plugins) != 0 {
			t.Errorf("%q made plugins", bad)
		}
		r.stop()
	}
}

// TestReconcile: changes by a plugin are reported once; its allocations for pods that the node does not
// have are released; and allocations of an earlier agent are adopted.
func TestReconcile(t *testing.T) {
	f := &fake{options: &api.ResourcePluginOptions{NeedReconcile: true}, allocate: gives("nic", "1")}
	give := func(uid, text string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		a, _ := gives("nic", text)(t.Context(), nil)
		if f.have == nil {
			f.have = map[string]*api.ContainerResources{}
		}
		f.have = map[string]*api.ContainerResources{"u1": f.have["u1"], "u3": f.have["u3"], "gone": f.have["gone"]}
		f.have[uid] = &api.ContainerResources{ContainerResources: map[string]*api.ResourceAllocation{"app": a}}
	}
	changed := make(chan []string, 100)
	r := start(t, t.TempDir(), func(o *qrm.Options) {
		o.ReconcileInterval, o.AllocationsChanged = 5*time.Millisecond, func(uids []string) { changed <- uids }
		o.LivePods = func() map[string]bool { return map[string]bool{"u1": true, "u3": true} }
	})
	give("u1", "1")
	give("u3", "3")
	give("gone", "0")
	f.serve(t, filepath.Join(r.dir, "nic.sock"))
	r.mustRegister("nic", "nic.sock")
	if _, err := r.Question(pod, app("app"), spec(lifecycle.Amounts{"nic": 1})).Allocate(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.ReleaseEnded(map[string]bool{"u1": true, "u3": true})
	until(t, "a pod that the node does not have is released", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return slices.Contains(f.removed, "gone")
	})
	until(t, "a pod of an earlier agent is taken over", func() bool { return len(r.Values("u3")["app"]) == 1 })
	if uids := <-changed; !slices.Equal(uids, []string{"u3"}) {
		t.Errorf("taken over %v", uids)
	}
	give("u1", "2")
	if uids := <-changed; !slices.Equal(uids, []string{"u1"}) {
		t.Errorf("changed %v", uids)
	}
	if v := r.Values("u1")["app"]; len(v) != 1 || v[0].Text != "2" {
		t.Errorf("values %v", v)
	}
	select {
	case uids := <-changed:
		t.Errorf("reported again: %v", uids)
	default:
	}
}

// TestAhead: what was allocated ahead is the answer to the same request, once, also after a restart.
// Another request, and a second creation, ask the plugin.
func TestAhead(t *testing.T) {
	dir := t.TempDir()
	f := &fake{options: &api.ResourcePluginOptions{WithTopologyAlignment: true}, allocate: gives("nic", "first")}
	f.hints = func() (*api.ResourceHintsResponse, error) { return &api.ResourceHintsResponse{}, nil }
	f.serve(t, filepath.Join(dir, "nic.sock"))
	var state []byte
	var calls []qrm.Result
	options := func(o *qrm.Options) {
		o.SavedState, o.Recorder = state, recorder(func(method string, r qrm.Result) {
			if method == "Allocate" {
				calls = append(calls, r)
			}
		})
		o.SaveState = func(b []byte) error { state = b; return nil }
	}
	r := start(t, dir, options)
	r.mustRegister("nic", "nic.sock")
	pod := &lifecycle.Pod{UID: "u1", Namespace: "default", Name: "web"}
	at := &lifecycle.Affinity{NUMAHint: lifecycle.NUMAHint{Nodes: []int{1}, Preferred: true}}
	ahead := func(amount int64) {
		t.Helper()
		q := r.Question(pod, app("app"), spec(lifecycle.Amounts{"nic": amount}))
		q.MarkBeforeCreation()
		if _, err := q.Allocate(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	create := func(amount int64, want string) {
		t.Helper()
		q := r.Question(pod, app("app"), spec(lifecycle.Amounts{"nic": amount}))
		hints, _ := q.Hints(t.Context())
		if want == "first" && (len(hints) != 1 || !slices.Equal(hints[0].Hints[0].Nodes, []int{1})) {
			t.Errorf("hints %v, want NUMA node 1", hints)
		}
		a, err := q.Allocate(t.Context(), nil)
		if err != nil || len(a.Values) != 1 || !strings.Contains(a.Values[0].String(), want) {
			t.Errorf("%v, %v; want %s", a.Values, err, want)
		}
	}
	ahead(1)
	r.stop()
	r = start(t, dir, options)
	r.mustRegister("nic", "nic.sock")
	f.allocate = gives("nic", "second")
	create(1, "first")
	create(1, "second")
	ahead(1)
	f.allocate = gives("nic", "third")
	create(2, "third")
	if want := []qrm.Result{qrm.Done, qrm.AnsweredBefore, qrm.Done, qrm.Done, qrm.Done}; !slices.Equal(calls, want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
}

// recorder is called for each call.
type recorder func(method string, r qrm.Result)

func (f recorder) CountCall(_, method string, r qrm.Result, _ time.Duration) { f(method, r) }
