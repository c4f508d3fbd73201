package record_test

import (
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/record"
)

// first is a record in the form in which version 1 was first written, with pointers for values that may be
// absent. It can read all records that containers carry since then, and writes the same text.
type first struct {
	Version     int                        `json:"v"`
	Generation  uint64                     `json:"gen"`
	CPUs        string                     `json:"cpus,omitempty"`
	Given       map[lifecycle.Field]string `json:"given,omitempty"`
	Ours        []lifecycle.Field          `json:"ours,omitempty"`
	NeverPlaced bool                       `json:"unplaced,omitempty"`
	Wanted      int                        `json:"wanted,omitempty"`
	PoolNode    *int                       `json:"home,omitempty"`
	Mems        string                     `json:"mems,omitempty"`
	Exports     map[string]string          `json:"exports,omitempty"`
	Outside     []lifecycle.Value          `json:"outside,omitempty"`
	Pristine    struct {
		Shares *uint64           `json:"shares,omitempty"`
		Quota  *int64            `json:"quota,omitempty"`
		Period *uint64           `json:"period,omitempty"`
		CPUs   string            `json:"cpus,omitempty"`
		Mems   string            `json:"mems,omitempty"`
		Memory *int64            `json:"memory,omitempty"`
		Huge   map[string]uint64 `json:"huge,omitempty"`
	} `json:"pristine"`
}

// record returns the same as a present record.
func (f *first) record() lifecycle.Record {
	r := lifecycle.Record{Version: f.Version, Generation: f.Generation, CPUs: f.CPUs, CreatedWith: f.Given, RecordFields: lifecycle.RecordFields{
		Managed: f.Ours, NeverPlaced: f.NeverPlaced, RefusedCPUs: f.Wanted, PoolNode: opt(f.PoolNode), Mems: f.Mems, CPUEnv: f.Exports, HookServerValues: f.Outside,
	}}
	p := &f.Pristine
	r.Pristine.CPU = lifecycle.CPU{Shares: opt(p.Shares), Quota: opt(p.Quota), Period: opt(p.Period), CPUs: p.CPUs, Mems: p.Mems}
	r.Pristine.Memory.Limit = opt(p.Memory)
	for _, size := range slices.Sorted(maps.Keys(p.Huge)) {
		r.Pristine.Hugepages = append(r.Pristine.Hugepages, lifecycle.HugepageLimit{Size: size, Limit: p.Huge[size]})
	}
	return r
}

func opt[T comparable](p *T) lifecycle.Opt[T] {
	if p == nil {
		return lifecycle.Opt[T]{}
	}
	return lifecycle.Some(*p)
}

func draw(t *rapid.T) (f first) {
	text := rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[0-9]{1,3}(-[0-9]{1,3})?(,[0-9])?`), rapid.String())
	f.Version, f.Generation = rapid.Int().Draw(t, "version"), rapid.Uint64().Draw(t, "generation")
	f.CPUs, f.Mems = text.Draw(t, "owned"), text.Draw(t, "nodes")
	f.NeverPlaced, f.Wanted = rapid.Bool().Draw(t, "unplaced"), rapid.IntRange(0, 9).Draw(t, "wanted")
	f.PoolNode = rapid.Ptr(rapid.IntRange(0, 3), true).Draw(t, "home")
	p := &f.Pristine
	p.CPUs, p.Mems = text.Draw(t, "cpus"), text.Draw(t, "mems")
	p.Shares = rapid.Ptr(rapid.Uint64(), true).Draw(t, "shares")
	p.Quota = rapid.Ptr(rapid.Int64(), true).Draw(t, "quota")
	p.Period = rapid.Ptr(rapid.Uint64(), true).Draw(t, "period")
	p.Memory = rapid.Ptr(rapid.Int64(), true).Draw(t, "memory")
	if rapid.Bool().Draw(t, "more") {
		p.Huge = rapid.MapOfN(text, rapid.Uint64(), 1, 2).Draw(t, "huge")
		f.Exports = rapid.MapOfN(text, text, 1, 2).Draw(t, "exports")
		f.Given = map[lifecycle.Field]string{lifecycle.BlockIOClass: text.Draw(t, "class")}
		f.Ours = rapid.SliceOfN(rapid.SampledFrom([]lifecycle.Field{lifecycle.CPUShares, lifecycle.CPUQuota}), 1, 2).Draw(t, "ours")
		f.Outside = []lifecycle.Value{{Field: lifecycle.Env, Key: text.Draw(t, "name"), Text: text.Draw(t, "value"), Why: lifecycle.Reason{Hook: "h"}}}
	}
	return f
}

// TestSpelling: records are encoded byte for byte as before, also for texts that no runtime should report,
// and are decoded completely.
func TestSpelling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := draw(t)
		r := f.record()
		want, err := json.Marshal(f)
		got, err2 := json.Marshal(r)
		if err != nil || err2 != nil || string(got) != string(want) {
			t.Fatalf("%v, %v\ngot  %s\nwant %s", err, err2, got, want)
		}
		var back lifecycle.Record
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatal(err)
		}
		var was first // the library repairs invalid texts
		if err := json.Unmarshal(got, &was); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(was.record(), back); diff != "" {
			t.Fatal(diff)
		}
	})
}

// today is a record as a container carries it: its text must not change.
const today = `f04223e6d20a53f74bc38f91df4d6106 {"v":1,"gen":7,"cpus":"2-3","given":{"blockio.class":"slow"},"exports":{"TRIMTAB_CPUS":"2-3"},"pristine":{"shares":512,"cpus":"0-3","huge":{"1GB":0,"2MB":67108864}}}`

// TestStamp: the facts that only the record has after a restart are read back completely, and only for the
// container of the record.
func TestStamp(t *testing.T) {
	want := lifecycle.Record{
		Version: 1, Generation: 7, CPUs: "2-3", CreatedWith: map[lifecycle.Field]string{lifecycle.BlockIOClass: "slow"},
		RecordFields: lifecycle.RecordFields{
			Pristine: lifecycle.Resources{
				CPU:       lifecycle.CPU{Shares: lifecycle.Some[uint64](512), CPUs: "0-3"},
				Hugepages: []lifecycle.HugepageLimit{{Size: "1GB", Limit: 0}, {Size: "2MB", Limit: 64 << 20}},
			},
			CPUEnv: map[string]string{"TRIMTAB_CPUS": "2-3"},
		},
	}
	s := record.NewSigner([]byte("k"))
	if text, whole := s.Stamp("uid", "c", want); text != today || !whole {
		t.Errorf("stamped %s", text)
	}
	got, err := s.Read("uid", "c", today)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	nameless, _ := s.Stamp("uid", lifecycle.UnnamedContainer, want)
	if _, err := s.Read("uid", "c", nameless); err != nil {
		t.Errorf("stamped before its name was known: %v", err)
	}
	later := want
	later.Version = 2
	newer, _ := s.Stamp("uid", "c", later)
	for _, tc := range []struct{ name, uid, container, text, want string }{
		{"another pod", "other", "c", today, "it is not signed with this node's key for this container"},
		{"another container", "uid", "d", today, "it is not signed with this node's key for this container"},
		{"no signature", "uid", "c", today[33:], "it is not signed with this node's key for this container"},
		{"too long", "uid", "c", today + strings.Repeat(" ", 4096), "it is longer than 4096 bytes"},
		{"newer", "uid", "c", newer, "its version 2 is unknown"},
	} {
		if r, err := s.Read(tc.uid, tc.container, tc.text); err == nil || err.Error() != tc.want || !cmp.Equal(r, lifecycle.Record{}) {
			t.Errorf("%s: %v, %+v; want %s", tc.name, err, r, tc.want)
		}
	}
}

// TestStampLong: if a record does not fit, the CPUs and the original values are kept in it.
func TestStampLong(t *testing.T) {
	r := lifecycle.Record{Version: 1, CPUs: "4", RecordFields: lifecycle.RecordFields{CPUEnv: map[string]string{"A": strings.Repeat("x", 5000)}}}
	s := record.NewSigner([]byte("k"))
	text, whole := s.Stamp("uid", "c", r)
	got, err := s.Read("uid", "c", text)
	if whole || err != nil || got.CPUs != "4" || got.CPUEnv != nil {
		t.Errorf("%v %v %+v", whole, err, got)
	}
}

// TestCheckpointText: a checkpoint is encoded as before, and a saved one is read and written unchanged.
func TestCheckpointText(t *testing.T) {
	open := func(data string) *record.Checkpoint {
		return record.NewCheckpoint([]byte(data), &sync.Mutex{}, slog.New(slog.DiscardHandler))
	}
	cp := open("")
	if got, want := string(cp.Text()), `{"v":1,"containers":{},"grants":null}`; got != want {
		t.Errorf("empty: %s", got)
	}
	const want = `{"v":1,"containers":{"c1":{"v":1,"gen":3,"cpus":"1","ours":["cpu.shares"],"home":0,"pristine":{"quota":-1,"memory":5}}},` +
		`"grants":{"u":"1"},"pods":{"p1":{"labels":{"a":"b"}}}}`
	cp.SetRecord("c1", lifecycle.Record{Version: 1, Generation: 3, CPUs: "1", RecordFields: lifecycle.RecordFields{
		Managed: []lifecycle.Field{lifecycle.CPUShares}, PoolNode: lifecycle.Some(0),
		Pristine: lifecycle.Resources{
			CPU:    lifecycle.CPU{Quota: lifecycle.Some[int64](-1), RealtimePeriod: lifecycle.Some[uint64](9)},
			Memory: lifecycle.Memory{Limit: lifecycle.Some[int64](5)}, Unified: map[string]string{"a": "b"},
		},
	}})
	cp.SetGrants(map[string]string{"u": "1"}, nil)
	cp.SetOverlay("p1", record.Overlay{Labels: map[string]string{"a": "b"}})
	if got := string(cp.Text()); got != want {
		t.Errorf("written %s", got)
	}
	again := open(want)
	if got := string(again.Text()); got != want {
		t.Errorf("read back %s", got)
	}
	now, _ := cp.Record("c1")
	was, ok := again.Record("c1")
	if diff := cmp.Diff(now, was); diff != "" || !ok || !was.FromCheckpoint {
		t.Errorf("%v %+v %s", ok, was, diff)
	}
	for range 4 { // containers that lists of the runtime leave out repeatedly
		again.Prune(&lifecycle.Event{Pods: []*lifecycle.Pod{{ID: "p1"}}})
	}
	if got := string(again.Text()); got != `{"v":1,"containers":{},"grants":{"u":"1"},"pods":{"p1":{"labels":{"a":"b"}}}}` {
		t.Errorf("pruned %s", got)
	}
	if err := record.CheckDecodable([]byte(`{"v":2}`)); err == nil || err.Error() != "read checkpoint: version 2 is unknown" {
		t.Error(err)
	}
}
