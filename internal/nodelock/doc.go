// Package nodelock ensures that only one agent works on a node. It locks directories that every agent of the node must
// use. An agent that holds a lock describes itself in a notice. The package does not decide what an agent does without
// the lock.
//
// A lock is a flock(2) on the directory itself. It needs no file, also works on a read-only mount, is the same in
// each mount namespace, and ends when its process ends. A notice is an extended attribute of the same directory, so an
// agent that sees the lock also finds the notice. The agent shows notices only to users: it decides by the locks alone.
package nodelock
