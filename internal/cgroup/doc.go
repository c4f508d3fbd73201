// Package cgroup knows the kernel's control-group files: their names in version 1 and version
// 2, their units and text, what they refuse and why, in which order parents and children must
// be written, and which other programs write them. It decides no value and stores none; package
// keeper does.
//
// A Watcher reports changes of a tree, by inotify.
//
// All access uses the three methods of FS. Real is the machine's tree, opened by an os.Root so
// that no path leaves it. Package sim/kernel has a tree in memory that refuses what the kernel
// refuses.
package cgroup
