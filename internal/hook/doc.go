// Package hook has the hooks: small units of policy that propose values for a container or pod,
// from its intent and its CPUs. Each hook has its file. A hook does no I/O and keeps no state
// between calls.
package hook
