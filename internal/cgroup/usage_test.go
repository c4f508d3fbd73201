package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestUsage: the usage of a cgroup is read in both versions, and a file in an unexpected format is an
// error.
func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		name    string
		version Version
		files   map[string]string
		cpu     time.Duration
		bytes   int64
		fails   bool
	}{
		{"v2", V2, map[string]string{
			"pod/cpu.stat": "usage_usec 1500000\nuser_usec 1\n", "pod/memory.stat": "anon 9\ninactive_anon 1\nactive_anon 2\ninactive_file 100\nunevictable 4\n",
		}, 1500 * time.Millisecond, 7, false},
		{"v1", V1, map[string]string{
			"cpuacct/pod/cpuacct.usage": "250\n", "memory/pod/memory.stat": "inactive_anon 1\ntotal_inactive_anon 10\ntotal_active_anon 20\ntotal_unevictable 0\n",
		}, 250, 30, false},
		{"no memory", V2, map[string]string{"pod/cpu.stat": "usage_usec 1\n"}, 0, 0, true},
		{"without a key", V2, map[string]string{"pod/cpu.stat": "user_usec 1\n", "pod/memory.stat": "inactive_anon 1\nactive_anon 2\nunevictable 4\n"}, 0, 0, true},
		{"no number", V1, map[string]string{"cpuacct/pod/cpuacct.usage": "many\n"}, 0, 0, true},
		{"nothing", V2, nil, 0, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cpu, bytes, err := treeOf(t, tc.version, tc.files).Usage("pod")
			if (err != nil) != tc.fails || cpu != tc.cpu || bytes != tc.bytes {
				t.Errorf("%v, %d, %v; want %v, %d, failure: %v", cpu, bytes, err, tc.cpu, tc.bytes, tc.fails)
			}
		})
	}
	if _, _, err := (&Tree{Version: V2}).Usage("."); err == nil {
		t.Error("the root is taken for a pod's cgroup")
	}
}

// treeOf makes a tree of files.
func treeOf(t *testing.T, version Version, texts map[string]string) *Tree {
	t.Helper()
	root := t.TempDir()
	for name, text := range texts {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	return &Tree{FS: files, Version: version}
}

// TestCPUUse: time, throttling and pressure are read in both versions. A kernel without PSI, and a cgroup without the
// controller cpu, are no errors.
func TestCPUUse(t *testing.T) {
	const stat = "usage_usec 1500000\nnr_periods 10\nnr_throttled 4\nthrottled_usec 250000\n"
	for _, tc := range []struct {
		name    string
		version Version
		files   map[string]string
		want    CPUUse
		fails   bool
	}{
		{"v2", V2, map[string]string{"pod/cpu.stat": stat, "pod/cpu.pressure": "some avg10=12.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=1\n"},
			CPUUse{CPUTime: 1500 * time.Millisecond, Periods: 10, ThrottledPeriods: 4, ThrottledTime: 250 * time.Millisecond, Pressure: 12.5}, false},
		{"without PSI", V2, map[string]string{"pod/cpu.stat": "usage_usec 1\n"}, CPUUse{CPUTime: time.Microsecond, Pressure: -1}, false},
		{"pressure in another form", V2, map[string]string{"pod/cpu.stat": "usage_usec 1\n", "pod/cpu.pressure": "some avg10=NaN\n"}, CPUUse{CPUTime: time.Microsecond, Pressure: -1}, false},
		{"v1", V1, map[string]string{"cpuacct/pod/cpuacct.usage": "250\n", "cpu/pod/cpu.stat": "nr_periods 3\nnr_throttled 2\nthrottled_time 70\n"},
			CPUUse{CPUTime: 250, Periods: 3, ThrottledPeriods: 2, ThrottledTime: 70, Pressure: -1}, false},
		{"nothing", V2, nil, CPUUse{}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := treeOf(t, tc.version, tc.files).CPUUse("pod")
			if (err != nil) != tc.fails || got != tc.want {
				t.Errorf("%+v, %v; want %+v, failure: %v", got, err, tc.want, tc.fails)
			}
		})
	}
	if _, err := (&Tree{Version: V2}).CPUUse("."); err == nil {
		t.Error("the root is taken for a container's cgroup")
	}
}
