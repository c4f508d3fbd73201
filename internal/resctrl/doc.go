// Package resctrl manages groups on the kernel's resctrl file system. A control group limits its threads to a part of
// the last level cache and of the memory bandwidth. A monitoring group only measures how much its threads use. The
// package writes only groups that it made, whose names begin with Prefix. The callers decide which threads belong to
// which group. Linux 6.12 describes the formats of the files in Documentation/filesystems/resctrl.rst.
package resctrl
