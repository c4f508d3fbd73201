package nodeview

import (
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// TestMissing: the reason why a value is not in force follows from its outcome, and from whether its cgroup
// exists.
func TestMissing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		became *ApplyResult
		absent bool
		want   api.MissingReason
		note   string
	}{
		{"nothing became of it", nil, false, api.NotYet, "not applied yet"},
		{"nothing became of it, without a cgroup", nil, true, api.NoCgroup, "not applied yet"},
		{"in force", &ApplyResult{Value: "2", Applied: true, Note: "n"}, false, "", "n"},
		{"in force, without a cgroup", &ApplyResult{Value: "2", Applied: true, Note: "n"}, true, "", "n"},
		{"pending", &ApplyResult{Value: "2", Missing: api.NotYet, Note: "n"}, false, api.NotYet, "n"},
		{"pending, without a cgroup", &ApplyResult{Value: "2", Missing: api.NotYet, Note: "n"}, true, api.NoCgroup, "the container runs, but its cgroup kube/c is not in the tree at cgroup.root"},
		{"refused", &ApplyResult{Value: "2", Missing: api.KernelRefused, Note: "n"}, false, api.KernelRefused, "n"},
		{"refused, without a cgroup", &ApplyResult{Value: "2", Missing: api.KernelRefused, Note: "n"}, true, api.KernelRefused, "n"},
		{"another text of it", &ApplyResult{Value: "3", Applied: true, Note: "n"}, false, "", "not applied yet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			val := lifecycle.Value{Field: lifecycle.CPUShares, Int: 2}
			v := View{ApplyResult: func(owner string, got lifecycle.Value) (ApplyResult, bool) {
				if tc.became == nil || owner != "c" || got.Field != val.Field {
					return ApplyResult{}, false
				}
				return *tc.became, true
			}}
			if tc.absent {
				v.MissingCgroups = map[string]string{"c": "kube/c"}
			}
			if _, missing, _ := v.applyResult("c", val); missing != tc.want {
				t.Errorf("missing as %q, want %q", missing, tc.want)
			}
			if got := v.values("c", []lifecycle.Value{val}); got[0].Note != tc.note {
				t.Errorf("explained as %+v", got[0])
			}
		})
	}
}

// TestJournal: the journal has the latest events by sequence number, and wakes callers that wait for more.
func TestJournal(t *testing.T) {
	var j Journal
	list, more := j.Since(0)
	if len(list) != 0 {
		t.Errorf("empty: %v", list)
	}
	for range journalSize + 2 {
		j.Add(api.Event{})
	}
	select {
	case <-more:
	default:
		t.Error("who waited was not woken")
	}
	for _, tc := range []struct{ since, first, count uint64 }{
		{0, 3, journalSize}, {2, 3, journalSize}, {3, 4, journalSize - 1}, {journalSize + 1, journalSize + 2, 1}, {journalSize + 2, 0, 0}, {1 << 40, 0, 0},
	} {
		list, more := j.Since(tc.since)
		if uint64(len(list)) != tc.count || tc.count > 0 && (list[0].Seq != tc.first || list[len(list)-1].Seq != journalSize+2) {
			t.Errorf("since %d: %d events", tc.since, len(list))
		}
		select {
		case <-more:
			t.Errorf("since %d: more at once", tc.since)
		default:
		}
	}
}
