// Package hooks is suite A: what the agent promises, on real kernels. The agent runs beside a real containerd in a
// virtual machine with the node's usual paths; the kernel's files and what a container saw at its first instruction are
// compared with what a scenario wants, by code that knows neither engine nor attachment.
//
// By itself one scenario of test/scenarios, with a pod of each kind, is played through NRI and through the CRI proxy, and
// a tenth of all others, through every attachment and on every guest: those played longest ago (turns.txt). With
// TRIMTAB_SOAK set, all of them on every guest, through the attachments by turns.
package hooks
