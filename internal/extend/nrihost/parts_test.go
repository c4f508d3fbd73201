package nrihost

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/clock"
)

// TestOverlay: parts of a document that neither side of a change has stay in it.
func TestOverlay(t *testing.T) {
	for _, c := range []struct{ name, document, before, after, want string }{
		{"nothing", `{"a":1,"x":2}`, `{"a":1}`, `{"a":1}`, `{"a":1,"x":2}`},
		{"a value", `{"a":{"b":1,"x":9007199254740993}}`, `{"a":{"b":1}}`, `{"a":{"b":2}}`, `{"a":{"b":2,"x":9007199254740993}}`},
		{"added", `{"x":1}`, `{}`, `{"n":{"m":[1]}}`, `{"n":{"m":[1]},"x":1}`},
		{"removed", `{"a":1,"x":1}`, `{"a":1}`, `{}`, `{"x":1}`},
		{"a list", `{"a":[1,2]}`, `{"a":[1,2]}`, `{"a":[2]}`, `{"a":[2]}`},
	} {
		got, err := mergeSpec([]byte(c.document), []byte(c.before), []byte(c.after))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.name, got, err, c.want)
		}
	}
}

// TestSplit: values that the CRI can express are carried by it: lists of CPUs always, and 0 never.
func TestSplit(t *testing.T) {
	carried, rest, left := splitForCRI(&api.LinuxResources{
		Cpu:    &api.LinuxCPU{Cpus: "0-1", Shares: api.UInt64(10), Quota: api.Int64(0)},
		Memory: &api.LinuxMemory{Limit: api.Int64(5), Swap: api.Int64(6)},
		Pids:   &api.LinuxPids{Limit: 7}, Unified: map[string]string{"cpuset.cpus": "3", "cpuset.cpus.partition": "root", "memory.high": "1"},
	})
	if want := (&cri.LinuxContainerResources{CpusetCpus: "3", CpuShares: 10, MemoryLimitInBytes: 5}).String(); carried.String() != want {
		t.Errorf("carried %v, want %v", carried, want)
	}
	if rest.GetCpu().GetCpus() != "" || rest.GetCpu().GetQuota() == nil || rest.GetMemory().GetSwap().GetValue() != 6 || rest.GetPids().GetLimit() != 7 || len(rest.GetUnified()) != 1 {
		t.Errorf("rest %v", rest)
	}
	if want := []string{"linux.resources.unified[cpuset.cpus.partition]"}; !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
	if carried, rest, left = splitForCRI(&api.LinuxResources{Cpu: &api.LinuxCPU{}, Memory: &api.LinuxMemory{}}); carried != nil || rest != nil || left != nil {
		t.Errorf("nothing is %v, %v, %v", carried, rest, left)
	}
}

// TestResourcesNotRequested: a value that the CRI cannot carry is reported, unless the runtime's request has the same.
func TestResourcesNotRequested(t *testing.T) {
	requested := &api.LinuxResources{
		Memory:         &api.LinuxMemory{Swap: api.Int64(6)},
		HugepageLimits: []*api.HugepageLimit{{PageSize: "2MB", Limit: 1}}, Unified: map[string]string{"memory.high": "1"},
	}
	for name, c := range map[string]struct {
		of   *api.LinuxResources
		want []string
	}{
		"nothing":  {nil, nil},
		"the same": {requested, nil},
		"changed": {&api.LinuxResources{
			HugepageLimits: []*api.HugepageLimit{{PageSize: "2MB", Limit: 2}}, Unified: map[string]string{"memory.high": "2"},
		}, []string{"linux.hugepage_limits", "linux.unified"}},
		"added": {&api.LinuxResources{
			HugepageLimits: []*api.HugepageLimit{{PageSize: "2MB", Limit: 1}, {PageSize: "1GB"}}, Unified: map[string]string{"memory.high": "1", "memory.low": "1"},
		}, []string{"linux.hugepage_limits", "linux.unified"}},
	} {
		if got := resourcesNotRequested(c.of, requested); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestChangesNothing: empty parts count as no change, and a value of 0 counts as a change.
func TestChangesNothing(t *testing.T) {
	linux := func(l *api.LinuxContainerAdjustment) *api.ContainerAdjustment {
		return &api.ContainerAdjustment{Linux: l}
	}
	for i, a := range []*api.ContainerAdjustment{
		nil, {}, {Hooks: &api.Hooks{}}, linux(&api.LinuxContainerAdjustment{}), linux(&api.LinuxContainerAdjustment{Rdt: &api.LinuxRdt{}}),
		linux(&api.LinuxContainerAdjustment{Resources: &api.LinuxResources{Memory: &api.LinuxMemory{}, Cpu: &api.LinuxCPU{}}}),
	} {
		if !isEmptyAdjustment(a) {
			t.Errorf("adjustment %d changes something: %v", i, a)
		}
	}
	for i, a := range []*api.ContainerAdjustment{
		{Env: []*api.KeyValue{{Key: "A"}}}, {Hooks: &api.Hooks{Poststop: []*api.Hook{{}}}}, {Annotations: map[string]string{"a": ""}},
		linux(&api.LinuxContainerAdjustment{OomScoreAdj: &api.OptionalInt{}}), linux(&api.LinuxContainerAdjustment{Rdt: &api.LinuxRdt{EnableMonitoring: &api.OptionalBool{}}}),
		linux(&api.LinuxContainerAdjustment{Resources: &api.LinuxResources{Memory: &api.LinuxMemory{Limit: &api.OptionalInt64{}}}}),
		linux(&api.LinuxContainerAdjustment{Resources: &api.LinuxResources{Unified: map[string]string{"a": ""}}}),
	} {
		if isEmptyAdjustment(a) {
			t.Errorf("adjustment %d changes nothing: %v", i, a)
		}
	}
}

// TestJournal: entries survive a restart, and half-written ones do not.
func TestJournal(t *testing.T) {
	j := journal{dir: t.TempDir() + "/j", log: slog.New(slog.DiscardHandler)}
	a, b := journalEntry{Pod: "p", Name: "c", Attempt: 2}, journalEntry{Stopped: "s"}
	done := j.write(a)
	j.write(b)
	all, _, err := j.read()
	if err != nil || len(all) != 2 || !slices.Contains(all, a) || !slices.Contains(all, b) {
		t.Fatalf("entries %v, %v", all, err)
	}
	done()
	j.removeEntry(b)
	if all, _, err = j.read(); err != nil || len(all) != 0 {
		t.Errorf("entries %v, %v", all, err)
	}
}

// TestVeil: an object is hidden first by name, later by id, and at the end not at all.
func TestVeil(t *testing.T) {
	v := newHiddenObjects()
	named, reveal, ok := v.hide("k")
	if _, _, twice := v.hide("k"); !ok || twice {
		t.Error("hidden twice")
	}
	if !v.hides("x", "k") || v.hides("id") {
		t.Error("hidden by its name alone")
	}
	named("id")
	if !v.hides("id") || !v.hasHidden() {
		t.Error("hidden by its id, too")
	}
	reveal()
	reveal()
	if v.hides("id", "k") || v.hasHidden() {
		t.Error("still hidden")
	}
}

// TestNote: a message gets the updated values, and keeps the others.
func TestNote(t *testing.T) {
	c := &api.Container{Linux: &api.LinuxContainer{Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "1", Shares: api.UInt64(1)}}}}
	addResources(c, &cri.LinuxContainerResources{CpuShares: 9})
	addResources(c, nil)
	got := []any{c.Linux.Resources.Cpu.Cpus, c.Linux.Resources.Cpu.Shares.GetValue()}
	if d := cmp.Diff([]any{"1", uint64(9)}, got); d != "" {
		t.Error(d)
	}
}

// FuzzFirst: of any first message of a client, no more than the bound is stored.
func FuzzFirst(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x01\x01\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		defer clock.Watch(t, len(b))()
		first, name, err := readRegistration(bytes.NewReader(b))
		if err == nil && (name == "" || !bytes.HasPrefix(b, first)) || len(first) > 2*maxFirstMessage+len(b) {
			t.Errorf("%d bytes, name %q, %v", len(first), name, err)
		}
	})
}

// FuzzOverlay: a JSON document stays valid JSON.
func FuzzOverlay(f *testing.F) {
	f.Add([]byte(`{"a":1}`), []byte(`{"a":1}`), []byte(`{"a":2}`))
	f.Fuzz(func(t *testing.T, d, b, a []byte) {
		defer clock.Watch(t, len(d)+len(b)+len(a))()
		if out, err := mergeSpec(d, b, a); err == nil && !json.Valid(out) {
			t.Errorf("%s", out)
		}
	})
}

// TestListed: what has stopped, or was removed and is still stored, is not shown to new plugins.
func TestListed(t *testing.T) {
	b := newObjectStore()
	b.addPod(&api.PodSandbox{Id: "p"}, false)
	for _, id := range []string{"stays", "stops", "goes"} {
		b.addContainer(&api.Container{Id: id, PodSandboxId: "p"})
	}
	b.markReported("stops", stoppedField)
	b.markReported("goes", removedField)
	pods, ctrs := b.objectsForSync()
	if len(pods) != 1 || len(ctrs) != 1 || ctrs[0].GetId() != "stays" {
		t.Errorf("pods %v, containers %v", pods, ctrs)
	}
	b.markReported("p", removedField)
	if pods, ctrs = b.objectsForSync(); len(pods)+len(ctrs) > 0 {
		t.Errorf("of a removed pod: %v, %v", pods, ctrs)
	}
}
