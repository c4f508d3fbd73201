// Package hooks is suite A of docs/testing.md: it plays scenarios on real kernels. The agent and a real containerd run
// in a virtual machine with the usual paths of a node. The tests compare the expected values of a scenario with the
// kernel's files, and with what a container reports about itself when it starts. The code that compares the values does
// not use the agent's engine or attachments.
//
// Each run plays the scenario tour.yaml of test/scenarios, which has a pod of each kind, through NRI and through the
// CRI proxy. All other scenarios have a turn for each virtual machine, with one attachment. Of these turns, a run plays a
// tenth: those that were played longest ago (turns.txt). With TRIMTAB_SOAK, it plays all scenarios on every virtual
// machine. The attachments take turns: the next virtual machine uses the next attachment.
package hooks
