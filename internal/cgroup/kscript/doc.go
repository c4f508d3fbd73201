// Package kscript is one script of writes to cgroup files, the means to run it
// on a kernel, on the fake of package cgroup as on a real one, and the
// comparison of what the two answered. The answers of real kernels are kept in
// testdata, so that the fake is held to them without a virtual machine.
//
// The script knows no expectation of its own: what a kernel answers is right.
// Where the fake is meant to differ, Known says so with a reason.
package kscript
