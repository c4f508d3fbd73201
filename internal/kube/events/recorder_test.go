package events

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/trimtab/trimtab/internal/kube"
)

func recorder(now *time.Time) *Recorder {
	r := NewRecorder(&kube.Client{Node: "n1"})
	r.now = func() time.Time { return *now }
	return r
}

func pod(i int) About {
	return About{Kind: "Pod", Namespace: "a", Name: fmt.Sprint("p", i), UID: fmt.Sprint(i)}
}

// TestMerged: repeated warnings about an object become one event with a count.
func TestMerged(t *testing.T) {
	now := time.Now()
	r := recorder(&now)
	for _, text := range []string{"first", "second", "third"} {
		r.Warn(pod(1), RequestRefused, text)
		now = now.Add(time.Second)
	}
	p := r.oldest()
	if len(r.queue) != 1 || p.count != 3 || p.message != "third" || p.last.Sub(p.first) != 2*time.Second {
		t.Errorf("%d wait, the first is %+v", len(r.queue), p)
	}
	// A warning during the write stays in the queue.
	r.Warn(pod(1), RequestRefused, "fourth")
	r.finish(p, ResultWritten)
	if q := r.oldest(); q == nil || q.count != 1 || q.message != "fourth" {
		t.Errorf("afterwards %+v waits", q)
	}
	r.finish(r.oldest(), ResultWritten)
	if q := r.oldest(); q != nil || r.Counts()[ResultWritten] != 2 {
		t.Errorf("%+v still waits; counts %v", q, r.Counts())
	}
}

// TestFull: the newest events stay in the queue, and each dropped event is counted.
func TestFull(t *testing.T) {
	now := time.Now()
	r := recorder(&now)
	for i := range capacity + 7 {
		r.Warn(pod(i), HookFailed, "text")
	}
	if r.oldest().about != pod(7) || r.Counts()[ResultFull] != 7 || len(r.queue) != capacity {
		t.Errorf("%d wait from %v on, counts %v", len(r.queue), r.oldest().about, r.Counts())
	}
	// An event that was dropped while it was being written is not written twice.
	p := r.oldest()
	r.Warn(pod(capacity+7), HookFailed, "text")
	r.finish(p, ResultWritten)
	if r.oldest().about != pod(8) || len(r.queue) != capacity {
		t.Errorf("%d wait from %v on", len(r.queue), r.oldest().about)
	}
}

// TestLimited: one object cannot use up the place of all others.
func TestLimited(t *testing.T) {
	now := time.Now()
	r := recorder(&now)
	say := func(i int) {
		r.Warn(pod(1), Reason(fmt.Sprint("R", i)), "text")
		r.queue = nil
	}
	for i := range objectBurst + 5 {
		say(i)
	}
	if n := r.Counts()[ResultLimited]; n != 5 {
		t.Errorf("%d limited, want 5", n)
	}
	now = now.Add(objectInterval)
	if say(100); r.Counts()[ResultLimited] != 5 {
		t.Error("no event after a pause")
	}
	if say(101); r.Counts()[ResultLimited] != 6 {
		t.Error("two events after one pause")
	}
}

// TestObjectName: names are valid, differ for different events, and stay the same after a restart.
func TestObjectName(t *testing.T) {
	long := About{Kind: "Pod", Name: strings.Repeat("a", 253)}
	names := map[string]bool{}
	for _, p := range []*pendingEvent{
		{key: key{pod(1), HookFailed}}, {key: key{pod(2), HookFailed}}, {key: key{pod(1), RequestRefused}}, {key: key{long, HookFailed}},
	} {
		for _, node := range []string{"n1", "n2"} {
			name := objectName(node, p)
			if len(name) > 253 || names[name] || name != objectName(node, p) {
				t.Errorf("the name %s", name)
			}
			names[name] = true
		}
	}
}

// TestSharedName: all nodes that report the same about a version of an object use one event; another
// version and another message have other events.
func TestSharedName(t *testing.T) {
	about := About{Kind: "ConfigMap", Namespace: "kube-system", Name: "trimtab-cluster", UID: "u", Version: "7"}
	name := func(node, version, message string) string {
		about.Version = version
		return objectName(node, &pendingEvent{key: key{about, ConfigurationRefused}, message: message})
	}
	if name("n1", "7", "unknown key") != name("n2", "7", "unknown key") {
		t.Error("two nodes have two events")
	}
	names := map[string]bool{name("n1", "7", "a"): true, name("n1", "8", "a"): true, name("n1", "7", "b"): true, name("n1", "", "a"): true, name("n2", "", "a"): true}
	if len(names) != 5 {
		t.Errorf("%d names", len(names))
	}
}

// TestShorten: a long message stays valid text, and fits the API server's limit.
func TestShorten(t *testing.T) {
	for _, text := range []string{"short", strings.Repeat("ä", 700), "a" + strings.Repeat("ä", 700)} {
		if got := shorten(text); len(got) > maxMessage || !utf8.ValidString(got) || len(text) <= maxMessage && got != text {
			t.Errorf("%d bytes: %q", len(got), got[max(0, len(got)-10):])
		}
	}
}

// TestRows: each reason has a meaning and advice.
func TestRows(t *testing.T) {
	seen := map[Reason]bool{}
	for _, r := range ReasonRows() {
		if seen[r.Reason] || r.About == "" || !strings.HasSuffix(r.Means, ".") || !strings.HasSuffix(r.Do, ".") {
			t.Errorf("row %+v", r)
		}
		seen[r.Reason] = true
	}
}
