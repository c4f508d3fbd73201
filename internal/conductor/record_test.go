package conductor

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
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
		}
		p := &r.Pristine
		p.CPUs, p.Mems = text.Draw(t, "cpus"), text.Draw(t, "mems")
		p.Shares = rapid.Ptr(rapid.Uint64(), true).Draw(t, "shares")
		p.Quota = rapid.Ptr(rapid.Int64(), true).Draw(t, "quota")
		p.Period = rapid.Ptr(rapid.Uint64(), true).Draw(t, "period")
		p.Memory = rapid.Ptr(rapid.Int64(), true).Draw(t, "memory")
		p.Huge = rapid.MapOfN(text, rapid.Uint64(), 0, 2).Draw(t, "huge")
		want, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(r.appendJSON(nil)); got != string(want) {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	})
}
