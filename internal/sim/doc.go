// Package sim has the embedded runtime, a small container runtime that speaks NRI over a real socket on a described
// node with a fake kernel, and the player of scenarios. It starts no process and needs no privilege. It decides nothing
// about pods: NRI plugins do.
package sim
