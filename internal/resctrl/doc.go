// Package resctrl keeps groups on the kernel's resctrl file system: which part
// of the last level cache and of the memory bandwidth a group of threads has,
// and groups that only measure. It writes no other groups than those it made,
// whose names begin with Prefix, and decides nothing: who belongs where is said
// by values. File formats: Documentation/filesystems/resctrl.rst of Linux 6.12.
package resctrl
