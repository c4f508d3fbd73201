// Package kernel is a kernel in memory, for simulations and tests: cgroup trees
// of version 1 and 2 with partitions (Cgroups), resctrl (Resctrl) and core
// scheduling cookies (Cookies). It accepts and refuses what kernels do, and
// shows what they would show. The agent never uses it.
//
// Cgroups is held to recordings of real kernels by test/kernel/script. Resctrl
// and Cookies follow the kernel's documentation and were compared with none.
package kernel
