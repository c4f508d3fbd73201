// Package resctrl keeps groups on the kernel's resctrl file system: which part of
// the last level cache and of the memory bandwidth a group of threads has, and
// groups that only measure. It writes only groups that it made, whose names begin
// with Prefix. It decides nothing: values say which threads belong to which group.
// File formats: Documentation/filesystems/resctrl.rst of Linux 6.12.
package resctrl
