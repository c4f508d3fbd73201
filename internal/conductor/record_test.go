package conductor

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestRecordText: our writing of a record is the library's, byte for byte, for
// texts no runtime should tell, too.
func TestRecordText(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[0-9]{1,3}(-[0-9]{1,3})?(,[0-9])?`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		r := record{
			Version: rapid.Int().Draw(t, "version"), Generation: rapid.Uint64().Draw(t, "generation"), CPUs: text.Draw(t, "owned"),
			Unplaced: rapid.Bool().Draw(t, "unplaced"),
			Wanted:   rapid.IntRange(0, 9).Draw(t, "wanted"),
		}
		p := &r.Pristine
		p.CPUs, p.Mems = text.Draw(t, "cpus"), text.Draw(t, "mems")
		p.Shares = rapid.Ptr(rapid.Uint64(), true).Draw(t, "shares")
		p.Quota = rapid.Ptr(rapid.Int64(), true).Draw(t, "quota")
		p.Period = rapid.Ptr(rapid.Uint64(), true).Draw(t, "period")
		p.Memory = rapid.Ptr(rapid.Int64(), true).Draw(t, "memory")
		p.Huge = rapid.MapOfN(text, rapid.Uint64(), 0, 2).Draw(t, "huge")
		r.Exports = rapid.MapOfN(text, text, 0, 2).Draw(t, "exports")
		if rapid.Bool().Draw(t, "given") {
			r.Given = map[lifecycle.Field]string{lifecycle.BlockIOClass: text.Draw(t, "class")}
		}
		r.Ours = rapid.SliceOfN(rapid.SampledFrom([]lifecycle.Field{lifecycle.CPUShares, lifecycle.CPUQuota}), 0, 2).Draw(t, "ours")
		if len(r.Ours) == 0 {
			r.Ours = nil
		}
		want, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(r.appendJSON(nil)); got != string(want) {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	})
}

// TestRecordKeeps: what only the record tells after a restart comes back whole.
func TestRecordKeeps(t *testing.T) {
	pristine := lifecycle.Resources{
		CPU:       lifecycle.CPU{Shares: lifecycle.Some[uint64](512), CPUs: "0-3"},
		Hugepages: []lifecycle.HugepageLimit{{Size: "1GB", Limit: 0}, {Size: "2MB", Limit: 64 << 20}},
	}
	r := newRecord(7, "2-3", &pristine)
	r.Given = map[lifecycle.Field]string{lifecycle.BlockIOClass: "slow"}
	r.Exports = map[string]string{"TRIMTAB_CPUS": "2-3"}
	s := newSigner([]byte("k"))
	got, err := s.read("uid", "c", s.stamp("uid", "c", r))
	want := engine.Record{Pristine: pristine, CPUs: "2-3", Given: r.Given, Exports: r.Exports}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}
