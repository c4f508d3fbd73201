// Package hooks is suite A: scenarios on real kernels. The agent and a real containerd run in a virtual machine with
// the usual paths of a node. Code that is independent of engine and attachments compares the wants of a scenario with
// the kernel's files and with the container's report of its first instruction.
//
// Each run plays one scenario of test/scenarios, with a pod of each kind, through NRI and through the CRI proxy. Of all
// other scenarios, in each attachment and guest, it plays a tenth: those that were played longest ago (turns.txt). With
// TRIMTAB_SOAK it plays all of them on every guest, with the attachments in turn.
package hooks
