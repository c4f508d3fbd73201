package usage

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/test/clock"
)

func proc(stat string) fs.FS {
	return fstest.MapFS{
		"stat":            {Data: []byte(stat)},
		"pressure/cpu":    {Data: []byte("some avg10=1.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=1\n")},
		"pressure/memory": {Data: []byte("some avg10=0.25 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.10 avg60=0.00 avg300=0.00 total=1\n")},
	}
}

const (
	before = "cpu  1 1 1 1\ncpu0 100 0 100 800 0 0 0 0 50 0\ncpu1 0 0 0 1000 0 0 0 0 0 0\ncpu2 5 5 5 5\ncpu4 0 0 0 100\nintr 5\n"
	after  = "cpu  1 1 1 1\ncpu0 150 0 150 900 0 0 0 0 90 0\ncpu1 0 0 0 1050 50 0 0 0 0 0\ncpu2 1 1 1 1\ncpu3 7 7 7 7\ncpu4 100 0 0 100\nctxt 1\n"
)

func readings(t testing.TB) (Reading, Reading) {
	t.Helper()
	first, err := Read(proc(before))
	if err != nil {
		t.Fatal(err)
	}
	second, err := Read(proc(after))
	if err != nil {
		t.Fatal(err)
	}
	return first, second
}

func TestSince(t *testing.T) {
	first, second := readings(t)
	// The counter of CPU 2 decreased, and CPU 3 did not exist before. Waiting for the disk does not count
	// as work.
	want := map[int]float64{0: 0.5, 1: 0, 4: 1}
	if d := cmp.Diff(want, second.BusySince(first)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	pressure := []Pressure{{"cpu", "some", 1.5}, {"memory", "some", 0.25}, {"memory", "full", 0.1}}
	if d := cmp.Diff(pressure, second.Pressure); d != "" {
		t.Errorf("pressure (-want +got):\n%s", d)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(before)
	f.Add("cpu0 x\n")
	f.Add("cpu99999999999999999999 1\ncpu")
	f.Add(strings.Repeat("cpu0 1 2 3 4\n", 10_000))
	f.Add("cpu" + strings.Repeat("9", 100_000) + " 1")
	f.Fuzz(func(t *testing.T, stat string) {
		defer clock.Watch(t, len(stat))()
		r, err := Read(proc(stat))
		if err != nil {
			return
		}
		for id, share := range r.BusySince(Reading{TotalTicks: map[int]uint64{}, BusyTicks: map[int]uint64{}}) {
			t.Errorf("CPU %d was busy %f since it was not there", id, share)
		}
		for id, share := range r.BusySince(r) {
			t.Errorf("CPU %d was busy %f in no time", id, share)
		}
	})
}
