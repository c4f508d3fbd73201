// Package hooks is suite A: what the agent promises, on real kernels. The agent runs beside a real containerd in a
// virtual machine with the node's usual paths; the kernel's files and what a container saw at its first instruction are
// compared with what a scenario wants, by code that knows neither engine nor attachment.
//
// By itself one scenario of test/scenarios for each hook is played once, on the node it names, and three of them through
// the CRI proxy; with TRIMTAB_SOAK set,
// all of them on cgroup v2, on v1 and under systemd.
package hooks
