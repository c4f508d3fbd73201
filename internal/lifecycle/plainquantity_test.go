package lifecycle

import (
	"testing"

	"pgregory.net/rapid"
)

// TestPlainQuantity: the fast parser agrees with exact arithmetic.
func TestPlainQuantity(t *testing.T) {
	plain := 0
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringMatching(`[0-9]{1,20}(\.[0-9]{1,20})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?`),
			rapid.StringMatching(`[0-9.+\-eEinumkKMGTP]{0,12}`),
		).Draw(t, "text")
		per := rapid.SampledFrom([]int64{1, 1000}).Draw(t, "per")
		got, ok := plainQuantity(text, per)
		if !ok {
			return
		}
		plain++
		if want, err := exactQuantity(text, per); err != nil || got != want {
			t.Fatalf("%q in %d: %d, exact arithmetic says %d (%v)", text, per, got, want, err)
		}
	})
	if plain == 0 {
		t.Error("nothing was read the short way")
	}
}
