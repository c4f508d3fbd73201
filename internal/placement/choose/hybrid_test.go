package choose

import (
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
)

// TestCoresOfHybrids: an owner shares no core with others while cores with one thread are free, and
// performance cores are preferred if that has no cost.
func TestCoresOfHybrids(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, from, beside string
		want               Request
		cpus               string
	}{
		{name: "one", from: "0-23", want: Request{N: 1}, cpus: "16"},
		{name: "two", from: "0-23", want: Request{N: 2}, cpus: "0-1"},
		{name: "five", from: "0-23", want: Request{N: 5}, cpus: "16-20"},
		{name: "five, where three efficient ones are left", from: "0-15,16-18", want: Request{N: 5}, cpus: "0-4"},
		{name: "one that prefers performance", from: "0-23", want: Request{N: 1, Preferences: []Preference{{Name: "performance cores", CPUs: topology.SetOf(0, 1, 2, 3)}}}, cpus: "0"},
		{name: "spread over cores", from: "0-23", want: Request{N: 3, Cores: SpreadThreads}, cpus: "0,2,4"},
		{name: "one thread of each core", from: "0-23", want: Request{N: 3, Cores: OneThread}, cpus: "0,2,4"},
		{name: "an odd number of both kinds", from: "0-23", want: Request{N: 17}, cpus: "0-15,16"},
		{name: "of both kinds, with halves left", from: "1,2-3,5,16-19", want: Request{N: 6}, cpus: "2-3,16-19"},
		{name: "the rest of its core", from: "1-23", beside: "0", want: Request{N: 1}, cpus: "1"},
		{name: "the rest of its core, and a whole one", from: "1,3-23", beside: "0", want: Request{N: 3}, cpus: "1,4-5"},
		{name: "the rest of its core rather than that of another's", from: "1,3,5", beside: "2", want: Request{N: 1}, cpus: "3"},
		{name: "beside its kind", from: "2-23", beside: "0-1", want: Request{N: 2}, cpus: "2-3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := hybrid(t, 1)
			tt.want.From, tt.want.UsedWith = cpus(t, m, tt.from), cpus(t, m, tt.beside)
			got, err := NewTree(m).Choose(tt.want)
			if err != nil || got.CPUs != cpus(t, m, tt.cpus) {
				t.Errorf("%s, %v, by %v; want %s", m.Format(got.CPUs), err, got.Why, tt.cpus)
			}
		})
	}
}
