package cgroup

import (
	"errors"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/clock"
)

const bad = "error"

type encodeCase struct {
	in     lifecycle.Value
	v1, v2 string
}

func encodeCases() []encodeCase {
	num := func(f lifecycle.Field, n int64) lifecycle.Value { return lifecycle.Value{Field: f, Int: n} }
	text := func(f lifecycle.Field, s string) lifecycle.Value { return lifecycle.Value{Field: f, Text: s} }
	uni := func(key, s string) lifecycle.Value {
		return lifecycle.Value{Field: lifecycle.Unified, Key: key, Text: s}
	}
	return []encodeCase{
		{num(lifecycle.CPUShares, 2), "2", "1"},
		{num(lifecycle.CPUShares, 1000), "1000", "39"},
		{num(lifecycle.CPUShares, 1024), "1024", "39"},
		{num(lifecycle.CPUShares, 2000), "2000", "77"},
		{num(lifecycle.CPUShares, 50000), "50000", "1908"},
		{num(lifecycle.CPUShares, 262144), "262144", "10000"},
		{num(lifecycle.CPUShares, 0), bad, bad},
		{num(lifecycle.CPUShares, 1), bad, bad},
		{num(lifecycle.CPUShares, 262145), bad, bad},
		{num(lifecycle.CPUQuota, -1), "-1", "max"},
		{num(lifecycle.CPUQuota, 0), bad, bad},
		{num(lifecycle.CPUQuota, 999), bad, bad},
		{num(lifecycle.CPUQuota, 1000), "1000", "1000"},
		{num(lifecycle.CPUQuota, 50000), "50000", "50000"},
		{num(lifecycle.CPUQuota, 1<<44), bad, bad},
		{num(lifecycle.CPUPeriod, 100000), "100000", "100000"},
		{num(lifecycle.CPUPeriod, -1), bad, bad},
		{num(lifecycle.CPUPeriod, 1000001), bad, bad},
		{num(lifecycle.MemoryLimit, -1), "-1", "max"},
		{num(lifecycle.MemoryLimit, 1<<30), "1073741824", "1073741824"},
		{num(lifecycle.MemoryLimit, -2), bad, bad},
		{text(lifecycle.CPUSetCPUs, "3,1-2"), "1-3", "1-3"},
		{text(lifecycle.CPUSetCPUs, ""), bad, bad},
		{text(lifecycle.CPUSetCPUs, "0-"), bad, bad},
		{text(lifecycle.CPUSetMems, "0"), "0", "0"},
		{uni("memory.high", "max"), bad, "max"},
		{uni("memory.low", "1048576"), bad, "1048576"},
		{uni("memory.low", "1M"), bad, bad},
		{uni("cpu.idle", "1"), "1", "1"},
		{uni("cpu.idle", "2"), bad, bad},
		{uni("cpu.max.burst", "50000"), "50000", "50000"},
		{uni("memory.zswap.writeback", "1"), bad, "1"},
		{uni("io.weight", "a\nb"), bad, bad},
		{uni("cgroup.procs", "1"), bad, bad},
		{uni("cpu.weight", "1"), bad, bad},
		{uni("../cpu.max", "1"), bad, bad},
		{uni("tasks", "1"), bad, bad},
		{lifecycle.Value{Field: lifecycle.Hugepages, Key: "2MB", Int: 4 << 20}, "4194304", "4194304"},
		{lifecycle.Value{Field: lifecycle.Hugepages, Key: "1GB"}, "0", "0"},
		{lifecycle.Value{Field: lifecycle.Hugepages, Key: "2MB", Int: -1}, "-1", "max"},
		{lifecycle.Value{Field: lifecycle.Hugepages, Key: "2M", Int: 1}, bad, bad},
		{lifecycle.Value{Field: lifecycle.Hugepages, Key: "../2MB", Int: 1}, bad, bad},
		{uni("hugetlb.2MB.max", "0"), bad, bad},
		{lifecycle.Value{Field: lifecycle.IOLimit, Key: "8:0 rbps", Int: 1048576}, "1048576", "1048576"},
		{lifecycle.Value{Field: lifecycle.IOLimit, Key: "8:0 wiops", Int: -1}, "-1", "max"},
		{lifecycle.Value{Field: lifecycle.IOLimit, Key: "8:0 wiops", Int: 1<<32 - 1}, bad, bad},
		{lifecycle.Value{Field: lifecycle.IOLimit, Key: "8:0 rbps", Int: 0}, bad, bad},
		{lifecycle.Value{Field: lifecycle.IOLimit, Key: "sda rbps", Int: 1}, bad, bad},
		{lifecycle.Value{Field: lifecycle.IOLimit, Key: "8:0 rbps=1", Int: 1}, bad, bad},
		{lifecycle.Value{Field: lifecycle.IOLimit, Key: "08:0 rbps", Int: 1}, bad, bad},
		{uni("io.weight", "500"), bad, "500"},
		{uni("io.weight", "0"), bad, bad},
		{uni("io.bfq.weight", "1000"), "1000", "1000"},
		{uni("io.max", "8:0 rbps=1"), bad, bad},
		{text(lifecycle.Env, "x"), bad, bad},
	}
}

func TestEncode(t *testing.T) {
	for _, tt := range encodeCases() {
		for version, want := range map[Version]string{V1: tt.v1, V2: tt.v2} {
			got, err := (&Tree{Version: version}).Resolve("a", tt.in.Field, tt.in.Key).Encode(tt.in)
			if err != nil {
				got = bad
			}
			if got != want {
				t.Errorf("%v: Encode(%v %s %q) = %q (%v), want %q", version, tt.in.Field, tt.in.Key, tt.in, got, err, want)
			}
		}
	}
}

func TestDecode(t *testing.T) {
	tests := []struct {
		version Version
		field   lifecycle.Field
		key     string
		in      string
		want    string
	}{
		{V1, lifecycle.CPUShares, "", "1024\n", "1024"},
		{V1, lifecycle.CPUQuota, "", "-1", "-1"},
		{V2, lifecycle.CPUQuota, "", "max", "-1"},
		{V1, lifecycle.MemoryLimit, "", "9223372036854771712", "-1"},
		{V2, lifecycle.MemoryLimit, "", "max", "-1"},
		{V2, lifecycle.MemoryLimit, "", "1048577", "1048576"},
		{V2, lifecycle.CPUSetCPUs, "", "0,1,2\n", "0-2"},
		{V2, lifecycle.Unified, "memory.high", "max", "max"},
		{V2, lifecycle.Unified, "memory.high", "8192", "8192"},
		{V2, lifecycle.Unified, "io.weight", "100", "100"},
	}
	for _, tt := range tests {
		v, err := Decode(tt.version, tt.field, tt.key, tt.in)
		if err != nil || v.String() != tt.want {
			t.Errorf("Decode(%v %v %q) = %q, %v, want %q", tt.version, tt.field, tt.in, v, err, tt.want)
		}
	}
	if _, err := Decode(V2, lifecycle.CPUShares, "", "39"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a weight was taken for shares: %v", err)
	}
}

func TestSameAndCompare(t *testing.T) {
	tests := []struct {
		field lifecycle.Field
		a, b  string
		same  bool
		cmp   int
	}{
		{lifecycle.CPUQuota, "max", "-1", true, 0},
		{lifecycle.CPUQuota, "max", "1000", false, 1},
		{lifecycle.CPUQuota, "10000", "max", false, -1},
		{lifecycle.CPUQuota, "junk", "1000", false, 1},
		{lifecycle.CPUSetCPUs, "0,1", "0-1", true, 0},
		{lifecycle.CPUSetCPUs, "0", "0-1", false, 0},
		{lifecycle.MemoryLimit, "9223372036854771712", "-1", true, 0},
		{lifecycle.MemoryLimit, "1048577", "1048576", true, 0},
		{lifecycle.MemoryLimit, "2097152", "1048576", false, 1},
	}
	for _, tt := range tests {
		if got := (&Tree{}).Resolve("a", tt.field, "").Same(tt.a, tt.b); got != tt.same {
			t.Errorf("Same(%v, %q, %q) = %v", tt.field, tt.a, tt.b, got)
		}
		if tt.field == lifecycle.CPUSetCPUs {
			continue
		}
		if got := (&Tree{Version: V2}).Resolve("a", tt.field, "").Compare(tt.a, tt.b); got != tt.cmp {
			t.Errorf("Compare(%v, %q, %q) = %d, want %d", tt.field, tt.a, tt.b, got, tt.cmp)
		}
	}
}

func TestSettingsCoverFields(t *testing.T) {
	for _, f := range []lifecycle.Field{
		lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.CPUPeriod,
		lifecycle.CPUSetCPUs, lifecycle.CPUSetMems, lifecycle.MemoryLimit,
	} {
		s, err := FindSetting(f, "")
		if err != nil || s.V1 == (File{}) || s.V2 == (File{}) {
			t.Errorf("%v: row %+v, %v", f, s, err)
		}
	}
	seen := map[string]bool{}
	for _, s := range Settings() {
		if name := s.Field.String() + s.Key; seen[name] {
			t.Errorf("%s is twice in the table", name)
		} else {
			seen[name] = true
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"max", "-1", "0-3,7", "9223372036854771712", "max 100000", "", "\x00", "99999999999999999999"} {
		f.Add(s)
	}
	f.Add(strings.Repeat("0-4095,", 2_000))
	f.Add(strings.Repeat("254:0 rbps=1\n", 2_000))
	f.Fuzz(func(t *testing.T, text string) {
		defer clock.Watch(t, len(text))()
		for _, version := range []Version{V1, V2} {
			for _, s := range Settings() {
				v, err := Decode(version, s.Field, s.Key, text)
				if err != nil {
					continue
				}
				at := (&Tree{Version: version}).Resolve("a", s.Field, s.Key)
				again, err := at.Encode(v)
				if err == nil && s.Kind != KindShares && !at.Same(again, strings.TrimSpace(text)) {
					t.Errorf("%v %v: %q decodes to %q, encodes to %q", version, s.Field, text, v, again)
				}
			}
		}
	})
}
