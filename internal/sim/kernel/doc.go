// Package kernel simulates the kernel in memory, for simulations and tests: cgroup trees of version 1 and 2 with
// partitions (Cgroups), resctrl (Resctrl) and core scheduling cookies (Cookies). It accepts, refuses and shows the same
// as real kernels. The agent never uses it.
//
// test/kernel/script compares Cgroups with recordings of real kernels. Resctrl and Cookies follow the kernel's
// documentation and are not compared with a real kernel.
package kernel
