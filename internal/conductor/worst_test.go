package conductor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/test/clock"
	"github.com/trimtab/trimtab/test/hostile"
)

// worstPods are n of the pods that cost most to read, evenly from their list.
func worstPods(n int) []hostile.Pod {
	all := hostile.Pods(lifecycle.MaxValueBytes)
	var out []hostile.Pod
	for i := range n - 2 - 10 {
		out = append(out, all[i*len(all)/n])
	}
	for _, p := range all { // those that once held the lock for ten seconds
		if len(p.Annotations[intent.KatalystBindResult]) > lifecycle.MaxValueBytes {
			for range 10 {
				out = append(out, p)
			}
		}
	}
	return append(out, all[len(all)-2:]...) // many annotations, many labels
}

// crowd is a stage on which such pods run.
func crowd(t testing.TB, pods []hostile.Pod) *stage {
	t.Helper()
	s := newStage(t, cgroup.V2, false)
	for _, p := range pods {
		if _, err := s.run(attack{labels: p.Labels, annotations: p.Annotations}, true); err != nil {
			t.Fatal(p.Name, err)
		}
	}
	return s
}

// TestFiftyWorstPods: fifty of the largest pods that the API server accepts do not delay
// others, at their creation, in the runtime's list, and at a new configuration. Log, journal
// and status stay short.
func TestFiftyWorstPods(t *testing.T) {
	const n = 50
	pods := worstPods(n)
	end := clock.WatchAll(t, n*20_000)
	s := crowd(t, pods)
	end()
	checkReadable(t, s, n*lifecycle.MaxProblems)
	for name, again := range map[string]func(){
		"list":      func() { s.restart() },
		"configure": func() { s.con.Configure(s.policy, conductor.Tuning{}) },
	} {
		t.Log(name)
		clock.Bound(t, n*20_000, func() {
			s.said.Reset()
			again()
			s.con.Flush()
		})
		checkReadable(t, s, 100)
	}
}

// checkReadable limits what fifty pods can have logged and shown.
func checkReadable(t *testing.T, s *stage, problems int) {
	t.Helper()
	if lines := bytes.Count(s.said.Bytes(), []byte("msg=\"the agent found a problem when it handled an event\"")); lines > problems || s.said.Len() > 1000*(problems+200) {
		t.Errorf("%d lines of problems, %d bytes are logged", lines, s.said.Len())
	}
	events, _ := s.con.Journal().Since(0)
	for name, shown := range map[string]any{"status": nodeview.Status(s.con), "journal": events} {
		text, err := json.Marshal(shown)
		if err != nil || len(text) > 51*largest/2 {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	for _, e := range events {
		if len(e.Problems) > 51 || e.Pod != "" && len(e.Problems) > lifecycle.MaxProblems {
			t.Errorf("%s %s: %d problems", e.Kind, e.Pod, len(e.Problems))
		}
	}
}

// TestManyAnnotationsStay: tens of thousands of annotations are not copied, since making a map
// of them is slow.
func TestManyAnnotationsStay(t *testing.T) {
	pod := &lifecycle.Pod{ID: "p", UID: "u", Annotations: map[string]string{}}
	for i := range 50_000 {
		pod.Annotations[fmt.Sprint(i)] = ""
	}
	if used := testing.AllocsPerRun(3, func() { pod.Compact() }); used > 20 {
		t.Errorf("%g allocations", used)
	}
	if got := pod.Compact(); len(got.Annotations) != 50_000 {
		t.Errorf("%d annotations", len(got.Annotations))
	}
}

// BenchmarkWorstPods measures one pod at its creation (sandbox, container, start), and fifty
// pods in a list and at a new configuration, compared with pods without annotations. least-ns
// is the shortest run, per pod.
func BenchmarkWorstPods(b *testing.B) {
	const n = 50
	for name, pods := range map[string][]hostile.Pod{"silent": make([]hostile.Pod, n), "worst": worstPods(n)} {
		s := crowd(b, pods)
		for what, f := range map[string]func(){
			"create":    func() { s = crowd(b, pods) },
			"list":      func() { s.restart(); s.con.Flush() },
			"configure": func() { s.con.Configure(s.policy, conductor.Tuning{}); s.con.Flush() },
		} {
			b.Run(name+"/"+what, func(b *testing.B) {
				least := time.Duration(math.MaxInt64)
				for b.Loop() {
					start := time.Now()
					f()
					least = min(least, time.Since(start))
				}
				b.ReportMetric(float64(least)/n, "least-ns")
			})
		}
	}
}
