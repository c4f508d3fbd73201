// Package cgroup owns the kernel's control-group files: what they are called in
// version 1 and version 2, which units and text they take, what they refuse and
// why, in which order parents and children must be written, and who besides us
// writes them. It decides no value and remembers none; what is kept is the
// business of package keeper.
//
// A Watcher reports changes of a tree, by inotify.
//
// All access goes through the three methods of FS. Real is the machine's tree,
// held by an os.Root so that nothing leaves it; package sim/kernel has a tree in
// memory that refuses what the kernel refuses.
package cgroup
