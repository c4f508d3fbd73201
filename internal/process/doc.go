// Package process sets attributes of a container's processes from outside: limits (prlimit), scheduling policy
// (sched_setattr) and I/O priority (ioprio_set). It is for attachments whose request for a container cannot hold
// them. It sets each value once in a container's life: afterwards the processes may change their own attributes, as
// they may if an OCI runtime had set them. It decides nothing.
package process
