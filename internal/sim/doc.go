// Package sim has the embedded runtime and the player of scenarios. The embedded runtime is a small container runtime
// that serves NRI on a real socket. Its node is described by a scenario and has a simulated kernel, so the runtime
// starts no processes and needs no privileges. Only NRI plugins make decisions about pods.
package sim
