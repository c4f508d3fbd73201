package top

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/usage"
)

var update = flag.Bool("update", false, "write the wanted frames anew")

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

func readings(t testing.TB) (usage.Reading, usage.Reading) {
	t.Helper()
	first, err := usage.Read(proc(before))
	if err != nil {
		t.Fatal(err)
	}
	second, err := usage.Read(proc(after))
	if err != nil {
		t.Fatal(err)
	}
	return first, second
}

func node() api.Node {
	return api.Node{
		Version: "v0.1.0", Attachments: []api.Attachment{{Name: "nri", State: "connected"}},
		CPUs: api.NodeCPUs{
			Online: "0-4", Shared: "1-3", Reclaimed: "2-3", Reserved: "0",
			Nodes:  []api.NUMA{{ID: 0, CPUs: "0-1"}, {ID: 1, CPUs: "2-4"}, {ID: 2}},
			Grants: []api.Grant{{Pod: "db/redis-0", Container: "redis", CPUs: "4"}},
		},
		Containers: []api.Container{{ID: "w", Limits: &api.Limits{CPUQuota: 50_000, CPUPeriod: 100_000}}, {ID: "r"}, {ID: "n"}}, Unapplied: 1,
	}
}

func seen(t testing.TB) Model {
	t.Helper()
	first, second := readings(t)
	m := New(context.Background(), nil, nil, time.Second, false)
	before, after := uses()
	return m.WithSample(node(), before, first, nil).WithSample(node(), after, second, nil)
}

// uses are two readings of what containers have used, two seconds apart. The owner uses one CPU and a half, a container
// of the reclaimed pool half a CPU, stopped by its limit, and a third is new.
func uses() (before, after api.Usage) {
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	before = api.Usage{At: at, Containers: []api.ContainerUse{
		{ID: "r", Pod: "db/redis-0", Container: "redis", Used: 10 * time.Second, Pressure: -1},
		{ID: "w", Pod: "batch/report", Container: "worker", Pool: "reclaimed", Used: time.Second, Periods: 100, Throttled: 10, Pressure: 0},
	}}
	after = api.Usage{At: at.Add(2 * time.Second), Containers: []api.ContainerUse{
		{ID: "r", Pod: "db/redis-0", Container: "redis", Used: 13 * time.Second, Pressure: -1},
		{ID: "w", Pod: "batch/report", Container: "worker", Pool: "reclaimed", Used: 2 * time.Second, Periods: 120, Throttled: 15, Pressure: 31.4},
		{ID: "n", Pod: "shop/web", Container: "app", Pool: "shared", Used: time.Hour, Pressure: -1},
	}}
	return before, after
}

// TestSince: a container that is new, whose counters went back, or of which both readings have the same time, has no use.
func TestSince(t *testing.T) {
	before, after := uses()
	got := usedBetween(before, after)
	if len(got) != 2 || got["r"].CPUs != 1.5 || got["r"].ThrottledShare != -1 || got["w"].CPUs != 0.5 || got["w"].ThrottledShare != 0.25 || !got["w"].isHigh() || got["r"].isHigh() {
		t.Errorf("%+v", got)
	}
	if got := usedBetween(after, before); got != nil {
		t.Errorf("back in time: %+v", got)
	}
	before.Containers[0].Used = time.Hour
	if _, has := usedBetween(before, after)["r"]; has {
		t.Error("a counter that went back is taken for use")
	}
}

// TestPart: no row shows more than all of its CPUs.
func TestPart(t *testing.T) {
	for used, want := range map[float64]string{-1: "     -", 0: "   0 %", 1: "  50 %", 2.1: " 100 %", 2.2: "     -"} {
		if got := (Row{CPUs: []int{2, 3}, Used: used}).shareText(); got != want {
			t.Errorf("%g CPUs of two: %q, want %q", used, got, want)
		}
	}
	if got := (Row{Used: 1}).shareText(); got != "     -" {
		t.Errorf("no CPUs: %q", got)
	}
}

func TestFrame(t *testing.T) {
	failed := seen(t).WithSample(api.Node{}, api.Usage{}, usage.Reading{}, errors.New("the agent is gone\x1b[31m")).Frame()
	live := seen(t).Frame()
	live.Width, live.Height, live.ByName, live.Paused = 60, 9, true, true
	colored := seen(t).Frame()
	colored.Color = true
	for name, f := range map[string]Frame{"plain": seen(t).Frame(), "failed": failed, "live": live, "color": colored, "nothing": {}} {
		t.Run(name, func(t *testing.T) {
			got := f.String() + "\n"
			file := "testdata/" + name + ".txt"
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			for line := range strings.Lines(got) {
				if n := len([]rune(strings.TrimSuffix(line, "\n"))); !f.Color && f.Width > 0 && n > f.Width {
					t.Errorf("a line of %d columns on a terminal of %d", n, f.Width)
				}
			}
			if n := strings.Count(got, "\n"); f.Height > 0 && n > f.Height {
				t.Errorf("%d lines on a terminal of %d", n, f.Height)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	m := seen(t)
	press := func(m Model, k tea.Key) (Model, tea.Cmd) {
		next, cmd := m.Update(tea.KeyPressMsg(k))
		return next.(Model), cmd
	}
	paused, _ := press(m, tea.Key{Code: ' ', Text: " "})
	if !paused.Frame().Paused {
		t.Error("space does not pause")
	}
	next, again := paused.Update(sample{node: api.Node{Version: "later"}})
	if next.(Model).Frame().Node.Version != "v0.1.0" || again == nil {
		t.Error("a pause shows what came later, or never looks again")
	}
	if sorted, _ := press(m, tea.Key{Code: 's', Text: "s"}); !sorted.Frame().ByName {
		t.Error("s does not sort by name")
	}
	if _, cmd := press(m, tea.Key{Code: 'q', Text: "q"}); cmd == nil || cmd() != (tea.QuitMsg{}) {
		t.Error("q does not end it")
	}
}

// TestLook samples without an agent, then with one.
func TestLook(t *testing.T) {
	away := errors.New("away")
	m := New(t.Context(), func(context.Context) (api.Node, api.Usage, error) { return api.Node{}, api.Usage{}, away }, proc(before), time.Second, false)
	next, again := m.Update(m.Init()())
	if got := next.(Model).Frame().SampleError; got != "away" || again == nil {
		t.Errorf("trouble is %q, and it goes on: %v", got, again != nil)
	}
	m = New(t.Context(), func(context.Context) (api.Node, api.Usage, error) { return node(), api.Usage{}, nil }, proc(before), time.Second, false)
	next, _ = m.Update(m.Init()())
	if got := next.(Model).Frame(); got.SampleError != "" || got.Node.Version != "v0.1.0" || got.Busy != nil {
		t.Errorf("a first look shows %+v", got)
	}
}
