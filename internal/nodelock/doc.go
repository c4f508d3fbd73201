// Package nodelock ensures that only one agent works on a node. It locks directories that every
// agent of the node must open to do its work. An agent that holds a lock describes itself in a
// notice. The package does not decide what an agent does without the lock.
//
// A lock is a flock(2) on the directory itself. It needs no file, works if the directory is
// mounted read-only, is the same in each mount namespace, and ends with its process. A notice
// is an extended attribute of the same directory, so it is found wherever the lock is. It is
// only for users: the lock alone counts.
package nodelock
