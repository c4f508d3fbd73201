// Package script has one script of writes to cgroup files. It runs the script on the simulated kernel of
// internal/sim/kernel or on a real one, and compares the answers: the errors of the writes, and the texts of files
// after each write. The answers of real kernels are in testdata, so the comparison needs no virtual machine.
//
// The script has no expected answers of its own: the answers of real kernels are right. The file known.go lists the
// intended differences of the simulated kernel, with reasons.
package script
