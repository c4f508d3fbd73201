package keeper

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestLines holds lines of the journal against the library's.
func TestLines(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching("[ -~]{0,20}"))
	maybe := rapid.Ptr(text, true)
	rapid.Check(t, func(r *rapid.T) {
		o := origin{
			Owner: text.Draw(r, "owner"), Dir: text.Draw(r, "dir"), Parent: rapid.Bool().Draw(r, "parent"),
			Field: rapid.SampledFrom([]lifecycle.Field{lifecycle.CPUShares, lifecycle.Unified, lifecycle.CPUSetCPUs}).Draw(r, "field"),
			Key:   text.Draw(r, "key"), Ours: text.Draw(r, "ours"), Was: text.Draw(r, "was"),
			Original: maybe.Draw(r, "original"), Asked: maybe.Draw(r, "asked"), AskedFor: text.Draw(r, "askedFor"),
			Carried: rapid.Bool().Draw(r, "carried"), Weight: text.Draw(r, "weight"), Gone: rapid.Bool().Draw(r, "gone"),
		}
		want, err := json.Marshal(o)
		if err != nil {
			r.Fatal(err)
		}
		if got := o.appendJSON([]byte("before")); string(got) != "before"+string(want) {
			r.Errorf("%s, want %s", got, want)
		}
	})
}
