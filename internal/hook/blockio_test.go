package hook

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestBlockIO: where limits are set in each cgroup version, the values of a class, and the report about a
// missing disk.
func TestBlockIO(t *testing.T) {
	h := BlockIO{
		Classes: ByClass[string]{BE: "slow"}, Weights: ByClass[int]{LSR: 5000, BE: 10}, WeightFile: ioWeightFile,
		PodWide: true, Disks: map[string]string{"sda": "8:0"},
	}
	old := h
	old.PodWide, old.WeightFile = false, bfqWeightFile
	pod := func(class intent.Class, disk string) *intent.Pod {
		return &intent.Pod{
			Class: intent.Sourced[intent.Class]{V: class, Key: intent.KoordQoSClass},
			Disks: intent.Sourced[[]intent.DiskLimit]{V: []intent.DiskLimit{{Disk: disk, ReadBPS: 1 << 20, WriteIOPS: 100}}, Key: intent.KoordBlkioQoS},
		}
	}
	own := pod(intent.Reclaimed, "sdz")
	own.BlockIOClass = intent.Sourced[string]{V: "fast", Key: intent.TrimtabBlockIOClass}
	limits := map[string]string{"io.limit 8:0 rbps": "1048576", "io.limit 8:0 wiops": "100"}
	for _, c := range []struct {
		name string
		in   Input
		hook BlockIO
		want map[string]string
	}{
		{"a pod, v2", Input{Intent: pod(intent.Shared, "sda")}, h, limits},
		{"by number", Input{Intent: pod(intent.Shared, "8:0")}, h, limits},
		{"its container, v2", Input{Intent: pod(intent.Shared, "sda"), Container: "a"}, h, map[string]string{}},
		{"a pod, v1", Input{Intent: pod(intent.Shared, "sda")}, old, map[string]string{}},
		{"its container, v1", Input{Intent: pod(intent.Shared, "sda"), Container: "a"}, old, limits},
		{"no such disk", Input{Intent: pod(intent.Shared, "sdz")}, h, map[string]string{}},
		{"weight", Input{Intent: pod(intent.Dedicated, "sdz")}, h, map[string]string{"unified io.weight": "5000"}},
		{"weight by BFQ", Input{Intent: pod(intent.Dedicated, "sdz")}, old, map[string]string{"unified io.bfq.weight": "1000"}},
		{"class", Input{Intent: pod(intent.Reclaimed, "sdz"), Container: "a"}, h, map[string]string{"blockio.class": "slow"}},
		{"its own class", Input{Intent: own, Container: "a"}, h, map[string]string{"blockio.class": "fast"}},
		{"no request", Input{Intent: &intent.Pod{}, Container: "a"}, h, map[string]string{}},
		{"no request, pod", Input{Intent: &intent.Pod{}}, h, map[string]string{}},
	} {
		if diff := cmp.Diff(c.want, values(&c.in, c.hook)); diff != "" {
			t.Error(c.name, diff)
		}
	}
	var out Output
	h.Propose(&Input{Intent: pod(intent.Shared, "sdz")}, &out)
	if len(out.Problems) != 1 || out.Problems[0].Value != "sdz" {
		t.Errorf("a missing disk: %v", out.Problems)
	}
	if f := h.Info().FeatureSupport(func(string) lifecycle.Finding { return lifecycle.Finding{} }); f.Support != lifecycle.Unknown {
		t.Errorf("want the support unknown, got %v", f)
	}
}
