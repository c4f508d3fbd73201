package intent

import (
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

func TestText(t *testing.T) {
	t.Parallel()
	yes := true
	for _, test := range []struct{ got, want string }{
		{describeValue("a b"), "a b"},
		{describeValue(true), "true"},
		{describeValue(&yes), "true"},
		{describeValue((*bool)(nil)), ""},
		{describeValue([]int{3, 1}), "3, 1"},
		{describeValue([]string(nil)), ""},
		{describeValue(map[string]string{"b": "2", "a": "1"}), "a=1, b=2"},
		{describeValue([]lifecycle.Rlimit{{Type: "RLIMIT_NOFILE", Hard: 20, Soft: 15}, {Type: "RLIMIT_CORE"}}), "type RLIMIT_NOFILE, hard 20, soft 15; type RLIMIT_CORE"},
		{describeValue(NetDevice{Host: "eth1", Name: "net0"}), "host eth1, name net0"},
		{describeValue(struct {
			CPUs   int
			Whole  bool
			hidden int
		}{2, true, 1}), "CPUs 2, whole"},
	} {
		if test.got != test.want {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
}
