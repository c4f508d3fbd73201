package hook

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestCoreSched is the core scheduling table of Koordinator 1.7.
func TestCoreSched(t *testing.T) {
	has := CoreSched{KernelSupport: lifecycle.Finding{Support: lifecycle.Supported}}
	for _, c := range []struct {
		name  string
		class intent.Class
		ask   intent.CoreSchedRequest
		want  string
	}{
		{"LS, group-xxx", intent.Shared, intent.CoreSchedRequest{Group: "group-xxx"}, "group-xxx-expeller"},
		{"BE, group-sss", intent.Reclaimed, intent.CoreSchedRequest{Group: "group-sss"}, "group-sss"},
		{"LS", intent.Shared, intent.CoreSchedRequest{}, "default-expeller"},
		{"LSR", intent.Dedicated, intent.CoreSchedRequest{}, "default-expeller"},
		{"BE", intent.Reclaimed, intent.CoreSchedRequest{}, "default"},
		{"exclusive", intent.Shared, intent.CoreSchedRequest{Exclusive: true, Group: "x"}, "uid-1-expeller"},
		{"none", intent.Shared, intent.CoreSchedRequest{None: true, Group: "x"}, ""},
		{"SYSTEM", intent.System, intent.CoreSchedRequest{Group: "x"}, ""},
		{"no class", intent.None, intent.CoreSchedRequest{Group: "x"}, ""},
	} {
		p := &intent.Pod{Class: intent.Sourced[intent.Class]{V: c.class, Key: "k"}}
		if c.ask != (intent.CoreSchedRequest{}) {
			p.CoreSched = intent.Sourced[intent.CoreSchedRequest]{V: c.ask, Key: "k"}
		}
		in := &Input{Pod: &lifecycle.Pod{UID: "uid-1"}, Intent: p, Container: "a"}
		want := map[string]string{}
		if c.want != "" {
			want["core.sched"] = c.want
		}
		if diff := cmp.Diff(want, values(in, has)); diff != "" {
			t.Error(c.name, diff)
		}
		none := CoreSched{KernelSupport: lifecycle.Finding{Support: lifecycle.NotSupported, Why: "not there"}}
		if got := values(in, none); len(got) > 0 {
			t.Errorf("%s, not supported: %v", c.name, got)
		}
	}
}
