// Package process sets attributes of a container's processes after the container has started: resource limits
// (prlimit), scheduling policy (sched_setattr) and I/O priority (ioprio_set). It is for attachments that cannot pass
// these attributes to the runtime. It sets each value once in a container's life. Afterwards the processes may change
// these attributes themselves, in the same way as after a start with an OCI runtime that sets them. The package decides
// no values.
package process
