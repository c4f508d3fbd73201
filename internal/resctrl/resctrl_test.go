package resctrl

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/test/clock"
)

// TestWaysMask is the mask table of Koordinator 1.7.
func TestWaysMask(t *testing.T) {
	for _, c := range []struct {
		cbm      uint64
		from, to int
		want     uint64 // 0 for an error
	}{
		{0xff, 0, 100, 0xff}, {0x3ff, 10, 80, 0xfe}, {0x7ff, 10, 50, 0x3c}, {0x3ff, 0, 30, 0x7}, {0x3ff, 10, 85, 0x1fe},
		{0x101, 0, 100, 0}, {4, 0, 100, 0}, {0xff, -1, 50, 0}, {0xff, 50, 50, 0}, {0, 0, 100, 0},
	} {
		got, err := waysMask(c.cbm, Share{c.from, c.to})
		if (err != nil) != (c.want == 0) || err == nil && got != c.want {
			t.Errorf("%x %d-%d: %x, %v; want %x", c.cbm, c.from, c.to, got, err, c.want)
		}
	}
}

// TestLines: the kernel's text, by machine. Texts and AMD's formula: Koordinator 1.7.
func TestLines(t *testing.T) {
	intel := kernel.ResctrlHardware{CacheMask: "fff", Caches: []int{0, 1}, Bandwidth: 100, Groups: 2}
	sparse := kernel.ResctrlHardware{CacheMask: "fff", Caches: []int{0, 8}, Bandwidth: 2048, Groups: 2}
	for _, c := range []struct {
		hardware kernel.ResctrlHardware
		text     string
		want     string // lines, or part of the error
	}{
		{intel, "L3 0-100", "L3:0=fff;1=fff"},
		{intel, "MB 90", "MB:0=90;1=90"},
		{intel, "MB 81", "MB:0=90;1=90"},
		{intel, "L3@1 0-50, MB@0 10", ""},
		{intel, "L3 0-50, L3@1 50-100", "L3:0=3f;1=fc0"},
		{sparse, "L3 0-25, MB 100", "L3:0=7;8=7|MB:0=2048;8=2048"},
		{sparse, "MB 50, MB@8 1", "MB:0=80;8=1"},
		{sparse, "L3@1 0-50, L3 0-10", "no cache with the id 1"},
		{kernel.ResctrlHardware{Caches: []int{0}, Bandwidth: 100, Groups: 2}, "L3 0-10", "cannot allocate its L3 cache"},
		{kernel.ResctrlHardware{CacheMask: "f", Caches: []int{0}, Groups: 2}, "MB 10", "cannot allocate memory bandwidth"},
	} {
		m, err := readMachine(kernel.NewResctrl(c.hardware))
		if err != nil {
			t.Fatal(err)
		}
		a, err := ParseAllocation(c.text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.lines(a)
		text := strings.Join(got, "|")
		if err != nil {
			text = err.Error()
		}
		if text != c.want && (err == nil || !strings.Contains(text, c.want)) {
			t.Errorf("%s: %q, want %q", c.text, text, c.want)
		}
	}
}

// FuzzAllocation: parsed values are within their bounds.
func FuzzAllocation(f *testing.F) {
	f.Add("L3 0-40, L3@1 20-60, MB 30, MB@1 50")
	f.Add(strings.Repeat("L3@1 20-60, ", 20_000) + "MB 30")
	f.Add(strings.Repeat("L3@1-", 40_000))
	f.Fuzz(func(t *testing.T, text string) {
		defer clock.Watch(t, len(text))()
		a, err := ParseAllocation(text)
		for resource, shares := range a {
			for id, s := range shares {
				if err != nil || id < AnyCache || s.From < 0 || s.To > 100 || s.From >= s.To || (resource != "L3" && resource != "MB") {
					t.Errorf("%q: %s %d %+v, %v", text, resource, id, s, err)
				}
			}
		}
	})
}

// TestGroups: a group is made once, gets every thread, is measured, and is removed with its last owner.
func TestGroups(t *testing.T) {
	files := kernel.NewResctrl(kernel.ResctrlHardware{CacheMask: "ff", Caches: []int{0}, Bandwidth: 100, Groups: 2, HasMonitoring: true})
	g := New(files)
	for i, want := range []bool{true, false} {
		if changed, err := g.AddOwner("pod1", "trimtab-BE", "L3 0-50"); changed != want || err != nil {
			t.Fatalf("round %d: %v, %v", i, changed, err)
		}
	}
	if _, err := g.AddOwner("pod2", "trimtab-BE", "L3 0-50"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.AddOwner("pod3", "trimtab-LS", "MB 50"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("one group too many: %v", err)
	}
	rounds := [][]int{{1, 2}, {1, 2, 3}, {1, 2, 3}}
	found, moved, err := g.Join("c", "trimtab-BE/trimtab-c", func() ([]int, error) { return nil, nil })
	if found || moved || err != nil {
		t.Errorf("an empty cgroup: %v, %v, %v", found, moved, err)
	}
	next := 0
	if _, moved, err = g.Join("c", "trimtab-BE", func() ([]int, error) { next++; return rounds[next-1], nil }); !moved || err != nil || next != 3 {
		t.Errorf("join: %v, %v after %d rounds", moved, err, next)
	}
	if files.ControlGroupOf(3) != "trimtab-BE" || files.ControlGroupOf(9) != "." {
		t.Errorf("threads are in %s and %s", files.ControlGroupOf(3), files.ControlGroupOf(9))
	}
	if _, _, err := g.Join("c", "trimtab-BE/trimtab-c", func() ([]int, error) { return []int{1}, nil }); err != nil || files.MonitoringGroupOf(1) != "trimtab-BE/mon_groups/trimtab-c" {
		t.Errorf("measured by %q, %v", files.MonitoringGroupOf(1), err)
	}
	if _, _, err := g.Join("c", "trimtab-BE/trimtab-c", func() ([]int, error) { return []int{9}, nil }); err == nil || !strings.Contains(err.Error(), "different control group") {
		t.Errorf("a thread of another group: %v", err)
	}
	if err := errors.Join(g.RemoveOwner("pod1", "trimtab-BE"), g.RemoveOwnerFromAll("c")); err != nil || files.ControlGroupOf(1) != "trimtab-BE" || files.MonitoringGroupOf(1) != "" {
		t.Errorf("one owner is left: %s, %v", files.ControlGroupOf(1), err)
	}
	if err := g.RemoveOwnerFromAll("pod2"); err != nil || files.ControlGroupOf(1) != "." {
		t.Errorf("nobody is left: %s, %v", files.ControlGroupOf(1), err)
	}
}

// TestRemoveUnownedGroups removes the groups that an earlier agent left, and no others.
func TestRemoveUnownedGroups(t *testing.T) {
	files := kernel.NewResctrl(kernel.ResctrlHardware{CacheMask: "ff", Caches: []int{0}, Groups: 9, HasMonitoring: true})
	for _, dir := range []string{"trimtab-old", "theirs", "trimtab-BE", "mon_groups/trimtab-x", "mon_groups/theirs", "trimtab-BE/mon_groups/trimtab-y"} {
		if err := files.Mkdir(dir); err != nil {
			t.Fatal(err)
		}
	}
	g := New(files)
	if _, err := g.AddOwner("pod", "trimtab-BE", "L3 0-50"); err != nil {
		t.Fatal(err)
	}
	if err := g.RemoveUnownedGroups(); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{".": "theirs trimtab-BE", "mon_groups": "theirs", "trimtab-BE/mon_groups": ""} {
		if names, err := files.List(dir); err != nil || strings.Join(names, " ") != want {
			t.Errorf("%s has %q, %v; want %q", dir, names, err, want)
		}
	}
}

// TestNames: no name leads out of our own groups.
func TestNames(t *testing.T) {
	g := New(kernel.NewResctrl(kernel.ResctrlHardware{CacheMask: "ff", Caches: []int{0}, Groups: 9}))
	for _, name := range []string{"", "x", "../trimtab-x", "trimtab-../x", "trimtab-a/b", "trimtab-a/trimtab-b/c", "info", "trimtab-a\n"} {
		if _, err := g.AddOwner("o", name, "L3 0-50"); err == nil {
			t.Errorf("%q was made", name)
		}
	}
}

// TestProbe checks all three answers.
func TestProbe(t *testing.T) {
	whole := kernel.NewResctrl(kernel.ResctrlHardware{CacheMask: "ff", Caches: []int{0}, Bandwidth: 100, Groups: 2, HasMonitoring: true})
	bare, err := OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	for _, c := range []struct {
		name    string
		files   FS
		feature string
		want    lifecycle.Support
	}{
		{"nothing to open", nil, FeatureMounted, lifecycle.NotSupported},
		{"not mounted", bare, FeatureMounted, lifecycle.NotSupported},
		{"mounted", whole, FeatureMounted, lifecycle.Supported},
		{"cache", whole, FeatureL3Allocation, lifecycle.Supported},
		{"measuring", whole, FeatureL3Monitoring, lifecycle.Supported},
		{"no bandwidth", kernel.NewResctrl(kernel.ResctrlHardware{CacheMask: "ff", Caches: []int{0}, Groups: 2}), FeatureMBAllocation, lifecycle.NotSupported},
		{"no measuring", kernel.NewResctrl(kernel.ResctrlHardware{CacheMask: "ff", Caches: []int{0}, Groups: 2}), FeatureL3Monitoring, lifecycle.NotSupported},
		{"may not look", denied{whole}, FeatureMounted, lifecycle.Unknown},
	} {
		if got := Probe(c.files, c.feature); got.Support != c.want || (c.want == lifecycle.Supported) != (got.Why == "") {
			t.Errorf("%s: %+v, want %v", c.name, got, c.want)
		}
	}
}

// The files in denied cannot be read.
type denied struct{ FS }

func (denied) ReadFile(path string) ([]byte, error) {
	return nil, fmt.Errorf("open %s: %w", path, syscall.EACCES)
}
