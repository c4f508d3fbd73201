// Package hook holds the policies: small units that propose values for a
// container or pod from what was asked and where it sits. One file per hook. A
// hook performs no I/O and keeps nothing between calls.
package hook
