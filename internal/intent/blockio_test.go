package intent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestBlkioQoS: disks by name or number; invalid limits are reported.
func TestBlkioQoS(t *testing.T) {
	for _, c := range []struct {
		text     string
		want     []DiskLimit
		problems int
	}{
		{
			`{"blocks":[{"name":"/dev/sda","type":"device","ioCfg":{"readBPS":1048576,"writeIOPS":200}},{"name":"8:16","type":"device","ioCfg":{"readIOPS":5}}]}`,
			[]DiskLimit{{Disk: "sda", ReadBPS: 1 << 20, WriteIOPS: 200}, {Disk: "8:16", ReadIOPS: 5}}, 0,
		},
		{`{"blocks":[{"name":"data","type":"podvolume","ioCfg":{"readIOPS":2048}}]}`, nil, 1},
		{`{"blocks":[{"name":"sda","type":"device","ioCfg":{"readIOPS":-1}},{"name":"sdb","type":"device"}]}`, []DiskLimit{{Disk: "sdb"}}, 1},
		{`{"blocks":[{"name":"sda","type":"device","ioCfg":{"readIOPS":4294967295}}]}`, nil, 1},
		{`{"blocks":[{"name":"sda","type":"device","ioCfg":{"ioWeightPercent":50}}]}`, []DiskLimit{{Disk: "sda"}}, 1},
		{`{"blocks":[{"name":"8:0 rbps=1\n","type":"device"}]}`, nil, 1},
		{`{"blocks":[{"name":"","type":"device"}]}`, nil, 1},
		{`{"blocks":[{"name":"sda","type":"device","ioCfg":{"readBPS":"1Mi"}}]}`, nil, 1},
		{`{"blocks":[]}`, nil, 0},
		{`{"blocks":`, nil, 1},
	} {
		got := Read(&lifecycle.Pod{Annotations: map[string]string{KoordBlkioQoS: c.text}}, nil, Dialects())
		if diff := cmp.Diff(c.want, got.Disks.V); diff != "" || len(got.Problems) != c.problems {
			t.Errorf("%s: %s, %v", c.text, diff, got.Problems)
		}
	}
}

func TestClassName(t *testing.T) {
	for name, ok := range map[string]bool{"slow": true, "a.b-C_1": true, "../x": false, ".x": false, "a/b": false, "a b": false, "é": false} {
		got := Read(&lifecycle.Pod{Annotations: map[string]string{TrimtabBlockIOClass: name}}, nil, Dialects())
		if got.BlockIOClass.IsSet() != ok || (len(got.Problems) == 0) != ok {
			t.Errorf("%q: %+v, %v", name, got.BlockIOClass, got.Problems)
		}
	}
}
