package placement

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/topology"
	"pgregory.net/rapid"
)

// TestLedgerCounts compares a ledger with a plain list of grants, and a copy with its original.
func TestLedgerCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, plain := NewLedger(), map[Key]Grant{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			pod := rapid.IntRange(0, 3).Draw(t, "pod")
			key := Key{fmt.Sprint("u", pod), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "container")}
			before := l.Grants()
			c := l.Clone()
			switch rapid.IntRange(0, 4).Draw(t, "do") {
			case 0:
				c.Drop(key)
				delete(plain, key)
			case 1:
				if had := c.HasCPUs(key.PodUID); c.DropPod(key.PodUID) != had {
					t.Fatal("DropPod does not say whether there was one")
				}
				for k := range plain {
					if k.PodUID == key.PodUID {
						delete(plain, k)
					}
				}
			default:
				// Each pod has CPUs of its own.
				g := Grant{Key: key, CPUs: topology.SetOf(pod*8 + rapid.IntRange(0, 7).Draw(t, "cpu")), Lent: rapid.Bool().Draw(t, "lent")}
				if err := c.Check(key, g.CPUs); err != nil {
					t.Fatal(err)
				}
				c.Put(g)
				plain[key] = g
			}
			if diff := cmp.Diff(before, l.Grants()); diff != "" {
				t.Fatal("the copied one changed with its copy", diff)
			}
			l = c
			var owned, kept topology.Set
			for _, g := range plain {
				owned = owned.Union(g.CPUs)
				if !g.Lent {
					kept = kept.Union(g.CPUs)
				}
			}
			if len(l.Grants()) != len(plain) || l.OwnedCPUs() != owned || l.LentCPUs() != owned.Minus(kept) {
				t.Fatalf("%v: owned %v, lent %v", plain, l.OwnedCPUs().Members(), l.LentCPUs().Members())
			}
		}
		if !l.OwnedCPUs().Empty() && l.Check(Key{"other", "a"}, l.OwnedCPUs()) == nil {
			t.Fatal("CPUs of one pod are granted to another")
		}
	})
}
