// Package sim has the embedded runtime and the player of scenarios. The embedded runtime is a small container runtime
// that serves NRI on a real socket. It runs on a described node with a simulated kernel, so it starts no processes and
// needs no privileges. Only NRI plugins make decisions about pods.
package sim
