package churn

import (
	"bytes"
	"context"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/recording"
	"github.com/trimtab/trimtab/internal/report/status"
)

// recorder collects what an agent records.
type recorder struct {
	mu   sync.Mutex
	text bytes.Buffer
	stop context.CancelFunc
	done chan error
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *recorder) lines() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Count(r.text.Bytes(), []byte("\n"))
}

// record starts a recording, and returns when it has started.
func (n *node) record() *recorder {
	n.t.Helper()
	ctx, stop := context.WithCancel(n.t.Context())
	r := &recorder{stop: stop, done: make(chan error, 1)}
	can, ok := n.agent.Source().(status.RecordingSource)
	if !ok {
		n.t.Fatal("the agent cannot record")
	}
	go func() { r.done <- can.Record(ctx, false, r, func() error { return nil }) }()
	n.eventually("the recording begins", func() bool { return r.lines() > 0 })
	return r
}

// end ends a recording when no more lines come.
func (r *recorder) end(n *node) []byte {
	n.t.Helper()
	last, since := r.lines(), time.Now()
	n.eventually("the recording is complete", func() bool {
		if now := r.lines(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
	r.stop()
	if err := <-r.done; err != nil {
		n.t.Fatal(err)
	}
	return r.text.Bytes()
}

func (n *node) eventually(what string, is func() bool) {
	n.t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(patience); !is(); <-look.C {
		if time.Now().After(deadline) {
			n.t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// recordedChurn makes a recording that starts in the middle of a churn: only of pods, or also of
// configuration changes and restarts of the runtime.
func recordedChurn(t testing.TB, v cgroup.Version, containers, steps int, pods bool) (*node, []byte) {
	t.Helper()
	n := newNode(t, v, 7, "")
	for n.containers() < containers {
		n.run()
	}
	for range steps / 4 {
		n.step(containers)
	}
	r := n.record()
	for i := range steps {
		n.step(containers)
		switch {
		case pods:
		case i%100 == 49:
			n.reconfigure(i%200 < 100)
		case i%100 == 74:
			n.restart("runtime")
		}
	}
	return n, r.end(n)
}

// TestReplay records a churn from its middle on, including configuration changes and restarts of the
// runtime. The replay makes the same decisions, byte for byte, and with another configuration it lists the
// differences.
func TestReplay(t *testing.T) {
	t.Parallel()
	for _, v := range []cgroup.Version{cgroup.V2, cgroup.V1} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			n, text := recordedChurn(t, v, 200, 200, false)
			got := replayed(t, text, false, n)
			if !got.Same() || got.Lost > 0 {
				t.Errorf("of %d events %d were with another decision, %d are lost: %+v", got.Events, got.Differing, got.Lost, got.Differences[:min(5, len(got.Differences))])
			}
			if got.Events < 400 {
				t.Errorf("%d events show little", got.Events)
			}
			other := replayed(t, text, true, n)
			if other.Same() || !strings.HasPrefix(other.Differences[0].Owner, "churn/") {
				t.Errorf("without hook cpuset %+v", other.Differences[:min(3, len(other.Differences))])
			}
			n.config.Placement.Reclaim = "leftover" // reclaim was "together" at the start
			pools, err := agent.Replay(bytes.NewReader(text), &n.config)
			if err != nil || !slices.ContainsFunc(pools.Differences, func(d recording.Difference) bool { return d.Event == "" && d.Setting == "CPUs" }) {
				t.Errorf("with other pools nothing that ran at the start has other CPUs: %v, %+v", err, pools.Differences[:min(3, len(pools.Differences))])
			}
			t.Logf("%d events in %d bytes; under another configuration %d values differ", got.Events, len(text), len(other.Differences))
		})
	}
}

// replayed replays a recording with the same configuration, or with one without owners.
func replayed(t testing.TB, text []byte, another bool, n *node) recording.Report {
	t.Helper()
	c := n.config
	c.Hooks.CPUSet.Enabled = false
	of := &c
	if !another {
		of = nil
	}
	report, err := agent.Replay(bytes.NewReader(text), of)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// BenchmarkReplay measures how many recorded events are decided again per second, on a node of a thousand
// containers: by elapsed time, and by CPU time of one CPU. One goroutine reads and another decides. The
// garbage collector is set as in trimtab replay.
func BenchmarkReplay(b *testing.B) {
	_, text := recordedChurn(b, cgroup.V2, fullNode, 400, true)
	defer debug.SetGCPercent(debug.SetGCPercent(recording.GCPercent))
	var events uint64
	before := cpuTime(b)
	for b.Loop() {
		report, err := agent.Replay(io.NewSectionReader(bytes.NewReader(text), 0, int64(len(text))), nil)
		if err != nil || !report.Same() {
			b.Fatalf("%+v, %v", report, err)
		}
		events += report.Events
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(events)/(cpuTime(b)-before).Seconds(), "events/cpu-s")
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
