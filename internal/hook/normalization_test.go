package hook

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement"
	"pgregory.net/rapid"
)

func TestParseRatio(t *testing.T) {
	for text, want := range map[string]Ratio{"1.20": 120, "1.2": 120, "1": 100, "0.9": 90, "2.05": 205, "100": 10000} {
		if got, err := ParseRatio(text); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "0.00", "-1", "1.234", "1.", ".5", "1,2", "1e2", "101", "1000", " 1", "+1", "٣"} {
		if got, err := ParseRatio(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// TestDivide is the quota table of Koordinator 1.7, and the formula itself.
func TestDivide(t *testing.T) {
	for _, c := range []struct {
		ratio    Ratio
		in, want int64
	}{{120, 100000, 83334}, {120, 50000, 41667}, {200, 1, 1}, {120, math.MaxInt64, math.MaxInt64}, {0, 5, 5}} {
		if got := c.ratio.Divide(c.in); got != c.want {
			t.Errorf("%d / %s = %d, want %d", c.in, c.ratio, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		v, r := rapid.Int64Range(1, 1<<44).Draw(t, "v"), rapid.Int64Range(1, maxRatio).Draw(t, "r")
		got := Ratio(r).Divide(v)
		if got*r < v*100 || (got-1)*r >= v*100 {
			t.Errorf("%d / %d hundredths = %d", v, r, got)
		}
	})
}

// TestNormalization: which quotas are scaled.
func TestNormalization(t *testing.T) {
	for _, c := range []struct {
		name      string
		class     intent.Class
		container string
		seat      placement.PoolKind
		ratio     Ratio
		scaled    bool
		set       bool
	}{
		{"LS", intent.Shared, "a", placement.Shared, 120, true, false},
		{"no class", intent.None, "a", placement.Unclassified, 120, true, false},
		{"LS at 1.0", intent.Shared, "a", placement.Shared, 100, false, false},
		{"LS at 0.9", intent.Shared, "a", placement.Shared, 90, false, false},
		{"LSR", intent.Dedicated, "a", placement.Shared, 120, false, false},
		{"SYSTEM", intent.System, "a", placement.System, 120, false, false},
		{"BE: only what batch sets", intent.Reclaimed, "a", placement.Reclaimed, 120, true, true},
		{"own CPUs", intent.None, "a", placement.Exclusive, 120, false, false},
		{"an LS pod itself", intent.Shared, "", placement.Unclassified, 120, false, false},
		{"a BE pod itself", intent.Reclaimed, "", placement.Unclassified, 120, true, true},
	} {
		in := &Input{Intent: &intent.Pod{}, Container: c.container, Pool: c.seat}
		in.Intent.Class.V = c.class
		var out Output
		Normalization{Ratio: c.ratio}.Propose(in, &out)
		if got := len(out.Scales) == 1; got != c.scaled || got && out.Scales[0].OnlyDecided != c.set {
			t.Errorf("%s: %+v", c.name, out.Scales)
		}
	}
}
