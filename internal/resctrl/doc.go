// Package resctrl manages groups on the kernel's resctrl file system. A group limits its threads to a part of the last
// level cache and of the memory bandwidth; monitoring groups only measure. The package writes only groups that it made,
// whose names begin with Prefix. It decides nothing: the values that hooks decided say which threads belong to which
// group. Linux 6.12 describes the formats of the files in Documentation/filesystems/resctrl.rst.
package resctrl
