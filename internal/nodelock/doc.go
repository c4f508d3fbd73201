// Package nodelock lets one agent at a time work on a node. It owns locks on
// directories that every agent of the node must open to do its work, and the
// notices in which holders name themselves. It does not decide what an agent does
// without the lock.
//
// A lock is a flock(2) on the directory itself. It needs no file, works if the
// directory is mounted read-only, is the same in each mount namespace, and ends
// with the process that holds it. A notice is an extended attribute of the same
// directory, so it is found wherever the lock is. It is for people: only the lock
// counts.
package nodelock
