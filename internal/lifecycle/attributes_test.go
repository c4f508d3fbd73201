package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/test/clock"
)

// TestAttributesReadBack: a written text is read back as the same value.
func TestAttributesReadBack(t *testing.T) {
	t.Parallel()
	word := rapid.StringMatching(`[A-Z_]{1,12}`)
	flags := rapid.Custom(func(t *rapid.T) []string {
		if list := rapid.SliceOfN(word, 0, 3).Draw(t, "list"); len(list) > 0 {
			return list
		}
		return nil
	})
	rapid.Check(t, func(t *rapid.T) {
		hard := rapid.Uint64().Draw(t, "hard")
		r := Rlimit{Type: "RLIMIT_NOFILE", Hard: hard, Soft: rapid.Uint64Max(hard).Draw(t, "soft")}
		if got, ok := ParseRlimit(r.Type, r.Text()); !ok || got != r {
			t.Errorf("%q is read as %+v", r.Text(), got)
		}
		p := IOPriority{Class: word.Draw(t, "class"), Priority: rapid.Int32().Draw(t, "level")}
		if got, ok := ParseIOPriority(p.Text()); !ok || got != p {
			t.Errorf("%q is read as %+v", p.Text(), got)
		}
		s := Scheduler{
			Policy: word.Draw(t, "policy"), Nice: rapid.Int32().Draw(t, "nice"), Priority: rapid.Int32().Draw(t, "priority"), Flags: flags.Draw(t, "flags"),
			Runtime: rapid.Uint64().Draw(t, "runtime"), Deadline: rapid.Uint64().Draw(t, "deadline"), Period: rapid.Uint64().Draw(t, "period"),
		}
		if got, ok := ParseScheduler(s.Text()); !ok || !cmp.Equal(got, s) {
			t.Errorf("%q is read as %+v", s.Text(), got)
		}
		m := MemoryPolicy{Mode: word.Draw(t, "mode"), Nodes: rapid.SampledFrom([]string{"", "0", "0-1,3"}).Draw(t, "nodes"), Flags: flags.Draw(t, "memory flags")}
		if got, ok := ParseMemoryPolicy(m.Text()); !ok || !cmp.Equal(got, m) {
			t.Errorf("%q is read as %+v", m.Text(), got)
		}
	})
}

// FuzzAttributes: every text is either refused with an error, or read and written in one form.
func FuzzAttributes(f *testing.F) {
	for _, text := range []string{"", " ", "1:2", "IOPRIO_CLASS_BE 4", "SCHED_FIFO priority=10 priority=11", "SCHED_OTHER nice=-3 flags=A,B", "MPOL_BIND nodes=0-1 flags=", "x =", "x nice"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		defer clock.Watch(t, len(text))()
		if r, ok := ParseRlimit("RLIMIT_CPU", text); ok {
			if again, ok := ParseRlimit("RLIMIT_CPU", r.Text()); !ok || again != r {
				t.Errorf("%q: %+v", text, r)
			}
		}
		if s, ok := ParseScheduler(text); ok {
			if again, ok := ParseScheduler(s.Text()); !ok || !cmp.Equal(again, s) {
				t.Errorf("%q: %+v", text, s)
			}
		}
		if p, ok := ParseIOPriority(text); ok {
			if again, ok := ParseIOPriority(p.Text()); !ok || again != p {
				t.Errorf("%q: %+v", text, p)
			}
		}
		if m, ok := ParseMemoryPolicy(text); ok {
			if again, ok := ParseMemoryPolicy(m.Text()); !ok || !cmp.Equal(again, m) {
				t.Errorf("%q: %+v", text, m)
			}
		}
	})
}
