// Package agent wires the rooms together and owns their life: start order,
// reload, shutdown.
package agent
