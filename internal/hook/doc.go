// Package hook has the hooks. A hook is a small unit of policy. It proposes values for a container or pod: from the
// requests in the pod's labels and annotations, and from the CPUs of the container. Each hook has its own file. A hook
// does no I/O and keeps no state between calls.
package hook
