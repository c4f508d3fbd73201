// Package nodelock lets one agent at a time work on a node. It owns locks on
// directories that every agent of the node must open to do its work, and the
// notices in which holders say who they are. It refuses to decide what an agent
// does without the lock.
//
// A lock is a flock(2) on the directory itself: it needs no file, works where the
// directory is mounted read-only, is the same in each mount namespace, and ends with
// the process that holds it. A notice is an extended attribute of the same directory,
// so it is found wherever the lock is. It is for people: the lock alone counts.
package nodelock
