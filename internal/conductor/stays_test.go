package conductor

import (
	"bytes"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
)

// TestRefusalEnds: a value that the kernel refused is in force, and its problem ends, when the
// cause is gone. Log lines name pod and container.
func TestRefusalEnds(t *testing.T) {
	for _, others := range []bool{false, true} {
		const limits = `{"containers":{"a":{"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"}}}}`
		b := newBatch(t, limits)
		b.node.state.Policy.Hooks = []hook.Hook{hook.BatchOptions{}}
		var log bytes.Buffer
		b.reports.Log = slog.New(slog.NewTextHandler(&log, nil))
		b.event(lifecycle.CreateContainer, nil)
		for _, dir := range []string{"kubepods", "kubepods/podub", "kubepods/podub/c"} {
			if err := b.kernel.MkdirRunc(dir); err != nil {
				t.Fatal(err)
			}
		}
		const file = "kubepods/podub/c/memory.max"
		busy := true
		b.kernel.FailWrites(func(path, _ string) error {
			if busy && path == file {
				return syscall.EBUSY
			}
			return nil
		})
		b.event(lifecycle.StartContainer, nil)
		if v := b.memory(); v.Applied || !strings.Contains(v.Note, "busy") {
			t.Fatalf("it was not refused: %+v", v)
		}
		if !strings.Contains(log.String(), "container=a") || !strings.Contains(log.String(), "pod=batch") || !strings.Contains(log.String(), "ns=shop") {
			t.Errorf("the log does not name it: %s", &log)
		}
		busy = false
		if others {
			if err := b.kernel.WriteFile(file, []byte("67108864")); err != nil {
				t.Fatal(err)
			}
		}
		b.RepairAll()
		if v := b.memory(); !v.Applied {
			t.Errorf("it stays a problem: %+v", v)
		}
		if n := nodeview.Summary(b).Unapplied[api.KernelRefused]; n > 0 {
			t.Errorf("status counts %d", n)
		}
	}
}
