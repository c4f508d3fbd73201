package usage

import (
	"testing"
	"testing/fstest"
	"time"
)

// TestNode: the usage of a machine is read, and a file in an unexpected format is an error.
func TestNode(t *testing.T) {
	const stat = "cpu  1 1 1 1 1 1 1 1\ncpu0 100 0 50 900 10 0 0 0 0 0\ncpu1 50 0 0 900 10 0 0 0 0 0\n"
	for _, tc := range []struct {
		name, stat, memory string
		fails              bool
	}{
		{"usual", stat, "MemTotal:       1000 kB\nMemFree: 100 kB\nMemAvailable:    600 kB\n", false},
		{"an old kernel", stat, "MemTotal: 1000 kB\n", true},
		{"no number", stat, "MemTotal: all kB\nMemAvailable: 1 kB\n", true},
		{"no stat", "", "MemTotal: 1000 kB\nMemAvailable: 600 kB\n", true},
	} {
		proc := fstest.MapFS{"meminfo": {Data: []byte(tc.memory)}}
		if tc.stat != "" {
			proc["stat"] = &fstest.MapFile{Data: []byte(tc.stat)}
		}
		cpu, bytes, err := ReadNode(proc)
		if (err != nil) != tc.fails {
			t.Errorf("%s: %v", tc.name, err)
		}
		if err == nil && (cpu != 2*time.Second || bytes != 400<<10) {
			t.Errorf("%s: %v, %d", tc.name, cpu, bytes)
		}
	}
}
