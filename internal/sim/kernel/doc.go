// Package kernel simulates parts of the kernel in memory, for simulations and tests. Cgroups is a cgroup tree of
// version 1 or 2 with partitions. Resctrl is a resctrl tree. Cookies has the core scheduling cookies of threads.
// CPUFiles has the cpufreq and cpuidle files. These types accept and refuse the same writes as real kernels, and their
// files have the same texts. Processes has other attributes of threads, and Links has the network interfaces of the
// host.
//
// test/kernel/script compares Cgroups with recordings of real kernels. The other types follow the kernel's
// documentation and are not compared with a real kernel.
package kernel
