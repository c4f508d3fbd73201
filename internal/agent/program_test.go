package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProgramIn(t *testing.T) {
	const maps = `00400000-01061000 r-xp 00000000 fe:01 131 /usr/local/bin/trimtab
01061000-01c3f000 r--p 00c61000 fe:01 131 /usr/local/bin/trimtab
01c3f000-01d10000 rw-p 0183f000 fe:01 131 /usr/local/bin/trimtab
01d10000-01d60000 rw-p 00000000 00:00 0
7f0000000000-7f0000021000 r-xp 00000000 fe:01 77 /usr/lib/libc.so.6
7ffd1000-7ffd3000 r-xp 00000000 00:00 0 [vdso]
garbage
`
	got := programMappings(strings.NewReader(maps), "/usr/local/bin/trimtab")
	want := []addressRange{{0x400000, 0x1061000}, {0x1061000, 0x1c3f000}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(addressRange{})); d != "" {
		t.Error(d)
	}
	if err := releaseProgramPages(); err != nil { // the fuzzer continues
		t.Error(err)
	}
}
