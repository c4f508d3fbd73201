package runtimes

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is the number of a release; the zero value means an unknown release.
type Version struct{ Major, Minor, Patch int }

// ParseVersion reads a release such as "v0.12.5", "0.6.1", or "1.7.24~ds1" of a distribution. It returns the zero
// Version for any other text.
func ParseVersion(s string) Version {
	core := strings.TrimPrefix(s, "v")
	if i := strings.IndexAny(core, "-+~"); i >= 0 {
		core = core[:i]
	}
	var n [3]int
	for i, part := range strings.SplitN(core, ".", len(n)) {
		v, err := strconv.Atoi(part)
		if err != nil || v < 0 {
			return Version{}
		}
		n[i] = v
	}
	return Version{n[0], n[1], n[2]}
}

// Before reports whether v is an earlier release than o.
func (v Version) Before(o Version) bool {
	if v.Major != o.Major {
		return v.Major < o.Major
	}
	if v.Minor != o.Minor {
		return v.Minor < o.Minor
	}
	return v.Patch < o.Patch
}

// Known reports whether the release is known.
func (v Version) Known() bool { return v != Version{} }

// String returns the release such as 2.1.4, or without the patch level if that is 0, such as 1.34.
func (v Version) String() string {
	if v.Patch == 0 {
		return fmt.Sprintf("%d.%d", v.Major, v.Minor)
	}
	return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
}
