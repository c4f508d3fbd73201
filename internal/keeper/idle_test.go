package keeper

import (
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestWeightOfIdleFound: a keeper that finds a cgroup idle does not know its earlier weight, and does not
// take the weight that the kernel shows meanwhile for it.
func TestWeightOfIdleFound(t *testing.T) {
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		r := newRig(t, v, "p")
		idle := func(text string) Item { return unified("p", idleKey, text) }
		shares := func(n int64, back bool) Item {
			return Item{Target: Target{Owner: "p", Dir: "p"}, Value: lifecycle.Value{Field: lifecycle.CPUShares, Int: n}, Restore: back}
		}
		if err := r.tree.WriteText("p", lifecycle.Unified, idleKey, "1"); err != nil {
			t.Fatal(err)
		}
		r.Apply([]Item{idle("1")})
		r.Apply([]Item{idle("0"), shares(2, false)})
		r.Apply([]Item{idle("0"), shares(512, true)})
		text, err := r.tree.Read("p", lifecycle.CPUShares, "")
		if want, _ := (&cgroup.Tree{Version: v}).Resolve("a", lifecycle.CPUShares, "").Encode(lifecycle.Value{Field: lifecycle.CPUShares, Int: 512}); err != nil || text != want {
			t.Errorf("%v: %q, %v, want %s", v, text, err, want)
		}
	}
}
