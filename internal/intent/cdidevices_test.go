package intent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestExclusiveDevices: a number is a number of devices and a text is a name, whatever the name is.
func TestExclusiveDevices(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // what container a asks for
		odd  string // a part of the problem
	}{
		{"", "", ""},
		{"{}", "", ""},
		{`{"b":{"v.com/gpu":1}}`, "", ""},
		{`{"a":{"v.com/gpu":2}}`, "2 of v.com/gpu", ""},
		{`{"a":{"v.com/gpu":"2"}}`, "v.com/gpu=2", ""},
		{`{"a":{"v.com/gpu":["0:1","x"],"v.com/nic":1}}`, "v.com/gpu=0:1 v.com/gpu=x, 1 of v.com/nic", ""},
		{`{"a":{"v.com/gpu":0}}`, "", "0 is not a number of devices"},
		{`{"a":{"v.com/gpu":65}}`, "", "65 is not a number of devices"},
		{`{"a":{"v.com/gpu":33,"v.com/nic":32}}`, "", "more than 64 devices"},
		{`{"a":{"v.com/gpu":1.5}}`, "", "want a number of devices, a name in quotes, or a list of names"},
		{`{"a":{"v.com/gpu":[]}}`, "", "want a number of devices"},
		{`{"a":{"v.com/gpu":null}}`, "", "want a number of devices"},
		{`{"a":{"v.com/gpu":{"x":1}}}`, "", "want a number of devices"},
		{`{"a":{"v.com/gpu":"a=b"}}`, "", "is not the name of a device of the kind v.com/gpu"},
		{`{"a":{"v.com/gpu":""}}`, "", "is not the name of a device"},
		{`{"a":{"v.com/gpu":["x","x"]}}`, "", "v.com/gpu=x is listed twice"},
		{`{"a":{"gpu":1}}`, "", "is not a kind of CDI devices"},
		{`{"a":{"v.com/gpu":1},"a":{}}`, "", "malformed JSON"},
		{`["v.com/gpu"]`, "", "malformed JSON"},
	} {
		got := Read(&lifecycle.Pod{Annotations: map[string]string{TrimtabCDIDevices: c.text}}, nil, Dialects())
		var parts []string
		for _, r := range got.ExclusiveDevices.V.Of("a").V {
			parts = append(parts, r.String())
		}
		if text := strings.Join(parts, ", "); text != c.want {
			t.Errorf("%s: a asks for %q, want %q", c.text, text, c.want)
		}
		if all := fmt.Sprint(got.Problems); (len(got.Problems) > 0) != (c.odd != "") || !strings.Contains(all, c.odd) {
			t.Errorf("%s: problems %s, want %q", c.text, all, c.odd)
		}
	}
}
