package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestUsage: what a cgroup uses is read in both versions, and a file that is not in its form is an error.
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
			root := t.TempDir()
			for name, text := range tc.files {
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
			defer files.Close()
			cpu, bytes, err := (&Tree{FS: files, Version: tc.version}).Usage("pod")
			if (err != nil) != tc.fails || cpu != tc.cpu || bytes != tc.bytes {
				t.Errorf("%v, %d, %v; want %v, %d, failure: %v", cpu, bytes, err, tc.cpu, tc.bytes, tc.fails)
			}
		})
	}
	if _, _, err := (&Tree{Version: V2}).Usage("."); err == nil {
		t.Error("the root is taken for a pod's cgroup")
	}
}
