package real

import (
	"strings"
	"testing"
)

func TestNoSharing(t *testing.T) {
	judge := NoSharing(func(dir string) bool { return strings.HasSuffix(dir, "mine") })
	for _, test := range []struct {
		name string
		seen Snapshot
		want string // part of the error
	}{
		{"no containers", Snapshot{}, ""},
		{"apart", Snapshot{"a/mine": "2-3", "b/other": "0-1,4"}, ""},
		{"shared containers may overlap", Snapshot{"a/x": "0-3", "b/y": "0-3"}, ""},
		{"a new cpuset is empty", Snapshot{"a/mine": "2", "b/other": ""}, ""},
		{"overlap", Snapshot{"a/mine": "2-3", "b/other": "0,3"}, "CPU 3 of a/mine (2-3) is also in b/other (0,3)"},
		{"two owners", Snapshot{"a/mine": "2", "b/mine": "2"}, "CPU 2"},
		{"not a list", Snapshot{"a/mine": "2-x"}, "not a CPU list"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := judge(test.seen)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestFirstLine(t *testing.T) {
	log := "2026-01-02T03:04:05.6Z stderr F noise\n2026-01-02T03:04:05.6Z stdout P {\"a\": \n2026-01-02T03:04:05.7Z stdout F 1}\n"
	if line, ok := firstLine(log); !ok || line != `{"a": 1}` {
		t.Errorf("got %q, %v", line, ok)
	}
	if line, ok := firstLine(log[:len(log)-5]); ok {
		t.Errorf("an unfinished log has no line, got %q", line)
	}
}
