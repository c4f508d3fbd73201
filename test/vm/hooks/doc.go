// Package hooks is suite A: what the agent promises, on real kernels. The agent runs beside a real containerd in a
// virtual machine with the node's usual paths; the kernel's files and what a container saw at its first instruction are
// compared with what a scenario wants, by code that knows neither engine nor attachment.
//
// By itself one scenario of test/scenarios, with a pod of each kind, is played through NRI and through the CRI proxy; with
// TRIMTAB_SOAK set, all of them on cgroup v2, on v1 and under systemd, through the two by turns.
package hooks
