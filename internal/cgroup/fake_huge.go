package cgroup

import "math"

// This file is the fake's model of the hugetlb controller: limits are kept in
// whole huge pages, of which two sizes are there.

// fakeHugePages are the sizes of huge pages the fake has, in bytes.
var fakeHugePages = [...]int64{2 << 20, 1 << 30}

// unlimitedHuge is what the kernel stores for no limit.
func unlimitedHuge(size int64) int64 { return math.MaxInt64 / size * size }

func setHuge(at int, none string) func(*Fake, *fakeGroup, string) error {
	return func(_ *Fake, g *fakeGroup, text string) error {
		n, err := kernelBytes(text, none)
		if err != nil {
			return err
		}
		g.huge[at] = n / fakeHugePages[at] * fakeHugePages[at]
		return nil
	}
}

func hugeV1(at int) fakeFile {
	return fakeFile{show: func(_ *Fake, g *fakeGroup) string { return number(g.huge[at]) }, set: setHuge(at, "-1")}
}

func hugeV2(at int) fakeFile {
	return fakeFile{
		show: func(_ *Fake, g *fakeGroup) string {
			if n := g.huge[at]; n != unlimitedHuge(fakeHugePages[at]) {
				return number(n)
			}
			return unlimited
		},
		set: setHuge(at, unlimited),
	}
}
