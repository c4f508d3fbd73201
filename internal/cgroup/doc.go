// Package cgroup knows the kernel's control-group files: their names in version 1 and version
// 2, their units and text, which writes the kernel refuses and why, in which order parents and
// children must be written, and which other programs write them. It neither decides nor records
// values. Package keeper records the values that the agent writes.
//
// A Watcher reports changes of a tree, by inotify.
//
// All access to files uses the three methods of FS. Real is the machine's tree, opened by an
// os.Root so that no path leaves the tree. Package sim/kernel has a tree in memory that refuses
// what the kernel refuses.
package cgroup
