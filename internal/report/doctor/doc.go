// Package doctor examines a node from outside and reports what keeps Trimtab from working: problems of the runtime,
// the kubelet, the kernel and the agent itself. It only reads and needs no root. It distinguishes a problem from
// something that it could not read.
package doctor
