// Package process sets attributes of a container's processes after their start: resource limits (prlimit), scheduling
// policy (sched_setattr) and I/O priority (ioprio_set). It is for attachments that cannot pass these attributes to the
// runtime. It sets each value once in a container's life. Afterwards the processes may change their own attributes, as
// they may if an OCI runtime sets them. It decides no values.
package process
