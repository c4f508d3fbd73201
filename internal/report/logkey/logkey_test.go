package logkey

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestID(t *testing.T) {
	for _, tc := range []struct {
		in   ID
		want string
	}{{0, "00000000"}, {1, "00000001"}, {0xdeadbeef, "deadbeef"}} {
		if got := tc.in.String(); got != tc.want {
			t.Errorf("ID(%d) is %s, want %s", uint32(tc.in), got, tc.want)
		}
	}
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("decided", Op, ID(255))
	if !strings.Contains(b.String(), " op=000000ff\n") {
		t.Errorf("logged as %q", b.String())
	}
}
