// Package hook has the hooks. A hook is a small unit of policy. It proposes values for a container
// or pod from its intent and its CPUs. Each hook has its own file. A hook does no I/O and keeps no
// state between calls.
package hook
